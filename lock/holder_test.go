package lock_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

func TestPodFromEnv(t *testing.T) {
	t.Setenv(lock.PodNameEnv, "worker-0")
	t.Setenv(lock.PodUIDEnv, "")
	_, err := lock.PodFromEnv()
	if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "set POD_UID from the downward API's metadata.uid") {
		t.Errorf("got %v, want what to set", err)
	}
	t.Setenv(lock.PodUIDEnv, "pod-0")
	got, err := lock.PodFromEnv()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "worker-0", UID: "pod-0"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
