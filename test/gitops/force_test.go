package gitops_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// forced applies the file lock.yaml of each folder with a tool that is told to force the change, and returns the errors
// by folder.
type forced func(ctx context.Context, folders []string) map[string]error

func byKubectl(ctx context.Context, folders []string) map[string]error {
	failed := map[string]error{}
	for _, folder := range folders {
		_, failed[folder] = environment.Admin.Kubectl.Run(ctx, "", "apply", "--force", "-f", filepath.Join(folder, "lock.yaml"))
	}
	return failed
}

func byFlux(ctx context.Context, folders []string) map[string]error {
	GinkgoHelper()
	failed := map[string]error{}
	for folder, outcome := range fluxController(ctx).submit(ctx, folders, withForce) {
		failed[folder] = outcome()
	}
	return failed
}

func byArgoCD(ctx context.Context, folders []string) map[string]error {
	GinkgoHelper()
	failed := map[string]error{}
	outcomes := startSync(ctx, append([]string{"-force"}, folders...)...)()
	Expect(outcomes).To(HaveLen(len(folders)))
	for _, folder := range folders {
		failed[folder] = nil
		if outcome := outcomes[filepath.Base(folder)]; outcome.Phase != "Succeeded" {
			failed[folder] = fmt.Errorf("%+v", outcome)
		}
	}
	return failed
}

// wrongManifests are texts in the place of METADATA and SPEC in a manifest of the held lock.
var wrongManifests = map[string]struct{ metadata, spec string }{
	"a ttl that is too long":             {"", "owner: repository, ttl: 48h"},
	"a ttl that is none":                 {"", "owner: repository, ttl: 1 hour"},
	"an end in the past":                 {"", "owner: repository, expireTime: 2020-01-01T00:00:00Z"},
	"another owner":                      {"", "owner: other, ttl: 1h"},
	"a holder":                           {"", "owner: repository, ttl: 1h, holder: other"},
	"another scope":                      {"", "owner: repository, ttl: 1h, scope: Function, function: f"},
	"another key":                        {"", "key: other, owner: repository, ttl: 1h"},
	"a label with a blank":               {"labels: {team: a b}", "owner: repository, ttl: 1h"},
	"a finalizer":                        {"finalizers: [example.com/f]", "owner: repository, ttl: 1h"},
	"a resourceVersion":                  {"resourceVersion: '1'", "owner: repository, ttl: 1h"},
	"a resourceVersion and a longer ttl": {"resourceVersion: '1'", "owner: repository, ttl: 2h"},
	"a uid":                              {"uid: 2ad4a0b6-53aa-4afa-b09c-c8c0c62fa7e7", "owner: repository, ttl: 1h"},
	"a uid and a longer ttl":             {"uid: 2ad4a0b6-53aa-4afa-b09c-c8c0c62fa7e7", "owner: repository, ttl: 2h"},
	"a note that is too large":           {"annotations: {example.com/note: " + strings.Repeat("x", 2*rules.MaxBytes+rules.MaxGrowth) + "}", "owner: repository, ttl: 1h"},
}

var _ = DescribeTable("A held Lock is not lost by an invalid manifest that a tool forces,", func(ctx context.Context, apply forced) {
	right, wrong, titles, held := []string{}, []string{}, map[string]string{}, map[string]*v1alpha1.Lock{}
	for title, manifest := range wrongManifests {
		folder, name := application("gitops:force:"+strings.ReplaceAll(title, " ", "-"), "  owner: repository\n  ttl: 1h\n")
		right = append(right, folder)
		key := "key: gitops:force:" + strings.ReplaceAll(title, " ", "-") + ", "
		if strings.Contains(manifest.spec, "key: ") {
			key = ""
		}
		changed := GinkgoT().TempDir()
		write(changed, "lock.yaml", "apiVersion: forrst.dev/v1alpha1\nkind: Lock\nmetadata:\n  name: "+name+"\n  namespace: default\n  "+manifest.metadata+
			"\nspec: {"+key+manifest.spec+"}\n")
		wrong = append(wrong, changed)
		titles[changed] = title
		held[changed] = &v1alpha1.Lock{}
		held[changed].Name = name
	}
	for folder, err := range apply(ctx, right) {
		Expect(err).NotTo(HaveOccurred(), folder)
	}
	for _, lock := range held {
		*lock = *get(ctx, lock.Name)
	}
	refused := apply(ctx, wrong)
	Expect(refused).To(HaveLen(len(wrongManifests)))
	for folder, err := range refused {
		Expect(err).To(MatchError(MatchRegexp(`(?i)bad ?request|forbidden|admission webhook`)), titles[folder])
		now := get(ctx, held[folder].Name)
		Expect(now.UID).To(Equal(held[folder].UID), titles[folder])
		Expect(now.Spec).To(Equal(held[folder].Spec), titles[folder])
	}
},
	Entry("kubectl apply --force", forced(byKubectl)),
	Entry("Flux with force: true", Label("nightly"), forced(byFlux)),
	Entry("Argo CD with Force=true", Label("nightly"), forced(byArgoCD)),
)
