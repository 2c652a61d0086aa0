package v1alpha1

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFencingToken(t *testing.T) {
	recorded := int64(7)
	cases := map[string]struct {
		resourceVersion string
		isDeleted       bool
		recorded        *int64
		want            int64
		wantErr         bool
	}{
		"right after a grant":               {resourceVersion: "42", want: 42},
		"after a later write":               {resourceVersion: "99", recorded: &recorded, want: 7},
		"an object never stored":            {wantErr: true},
		"an opaque resourceVersion":         {resourceVersion: "abc", wantErr: true},
		"being deleted":                     {resourceVersion: "43", isDeleted: true, wantErr: true},
		"being deleted after a later write": {resourceVersion: "43", recorded: &recorded, isDeleted: true, want: 7},
		"a zero":                            {resourceVersion: "0", wantErr: true},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			lock := Lock{ObjectMeta: metav1.ObjectMeta{ResourceVersion: test.resourceVersion}, Spec: LockSpec{FencingToken: test.recorded}}
			if test.isDeleted {
				lock.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}
			got, err := lock.FencingToken()
			if got != test.want || (err != nil) != test.wantErr {
				t.Errorf("got %d, %v", got, err)
			}
		})
	}
}
