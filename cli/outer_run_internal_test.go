package cli

import (
	"strings"
	"testing"

	"forrst.dev/lock-operator/api/v1alpha1"
)

func TestIsOwnJob(t *testing.T) {
	job := func(name string) *v1alpha1.HolderReference { return &v1alpha1.HolderReference{Kind: "Job", Name: name} }
	for name, test := range map[string]struct {
		ref         *v1alpha1.HolderReference
		host, index string
		want        bool
	}{
		"a Pod of the Job":                         {ref: job("backup"), host: "backup-x7k2p", want: true},
		"a Pod of the indexed Job":                 {ref: job("backup"), host: "backup-3", index: "3", want: true},
		"a Pod of a Job with a long name":          {ref: job(strings.Repeat("b", 60)), host: strings.Repeat("b", 58) + "x7k2p", want: true},
		"a Pod of a Job with a longer name":        {ref: job("backup"), host: "backup-nightly-x7k2p"},
		"a Pod of a Job of the CronJob's":          {ref: job("backup"), host: "backup-29731680-x7k2p"},
		"another index, thus another Job's Pod":    {ref: job("backup"), host: "backup-4", index: "3"},
		"a Pod of another Job":                     {ref: job("restore"), host: "backup-x7k2p"},
		"a machine of the Job's name":              {ref: job("backup"), host: "backup"},
		"a lock that is held for a Pod":            {ref: &v1alpha1.HolderReference{Kind: "Pod", Name: "backup"}, host: "backup-x7k2p"},
		"a lock that is held for no object at all": {host: "backup-x7k2p"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isOwnJob(test.ref, test.host, test.index); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
