package runbooks_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// commands is a block of shell commands of a document.
var commands = regexp.MustCompile("(?s)\n```sh\n(.*?\n)```\n")

// quoted is a command in the text of a document.
var quoted = regexp.MustCompile("`(kubectl [^`]+)`")

// runbook is a section of docs/runbooks.md, whose blocks of commands are run in their order.
type runbook struct {
	blocks []string
	done   int
	// quotes are the commands in its text.
	quotes []string
	names  *strings.Replacer
}

// openRunbook returns the section with the heading. The pairs replace names of the document. The spec fails if it
// does not run all blocks.
func openRunbook(heading string, pairs ...string) *runbook {
	GinkgoHelper()
	module, err := testenv.ModuleRoot()
	Expect(err).NotTo(HaveOccurred())
	page, err := os.ReadFile(filepath.Join(module, "docs", "runbooks.md"))
	Expect(err).NotTo(HaveOccurred())
	_, section, isThere := strings.Cut(string(page), "\n## "+heading+"\n")
	Expect(isThere).To(BeTrue(), "docs/runbooks.md has no section %q", heading)
	section, _, _ = strings.Cut(section, "\n## ")
	opened := &runbook{names: strings.NewReplacer(pairs...)}
	for _, block := range commands.FindAllStringSubmatch(section, -1) {
		opened.blocks = append(opened.blocks, block[1])
	}
	for _, quote := range quoted.FindAllStringSubmatch(commands.ReplaceAllString(section, "\n"), -1) {
		opened.quotes = append(opened.quotes, quote[1])
	}
	DeferCleanup(func() {
		if !CurrentSpecReport().Failed() {
			Expect(opened.blocks[opened.done:]).To(BeEmpty(), "commands that were not run")
		}
	})
	return opened
}

// postpone skips the next block, which the returned runbook has as its only one.
func (r *runbook) postpone() *runbook {
	r.done++
	return &runbook{blocks: r.blocks[r.done-1 : r.done], names: r.names}
}

// run runs the next block, which must contain the text, as the user, and returns its output.
func (r *runbook) run(ctx context.Context, as fixture.Identity, text string) string {
	GinkgoHelper()
	output, err := r.try(ctx, as, text)
	Expect(err).NotTo(HaveOccurred(), output)
	return output
}

// runQuoted runs the only command in the text that contains the words, as the user, and returns its output. The pairs replace more
// names.
func (r *runbook) runQuoted(ctx context.Context, as fixture.Identity, text string, pairs ...string) string {
	GinkgoHelper()
	found := slices.DeleteFunc(slices.Clone(r.quotes), func(quote string) bool { return !strings.Contains(quote, text) })
	Expect(found).To(HaveLen(1))
	By(found[0])
	output, err := shell(ctx, as, strings.NewReplacer(pairs...).Replace(r.names.Replace(found[0])))
	Expect(err).NotTo(HaveOccurred(), output)
	return output
}

// again has the block that was run last run once more.
func (r *runbook) again() { r.done-- }

// fail is run for a block that must fail.
func (r *runbook) fail(ctx context.Context, as fixture.Identity, text string) string {
	GinkgoHelper()
	output, err := r.try(ctx, as, text)
	Expect(err).To(HaveOccurred(), output)
	return output
}

func (r *runbook) try(ctx context.Context, as fixture.Identity, text string) (string, error) {
	GinkgoHelper()
	Expect(len(r.blocks)).To(BeNumerically(">", r.done), "there is no further block")
	block := r.blocks[r.done]
	r.done++
	Expect(block).To(ContainSubstring(text))
	By(block)
	return shell(ctx, as, r.names.Replace(block))
}

// shell runs a script as a user with kubectl, etcdctl and etcdutl, in the folder of the module. It returns all output.
func shell(ctx context.Context, as fixture.Identity, script string) (string, error) {
	GinkgoHelper()
	module, err := testenv.ModuleRoot()
	Expect(err).NotTo(HaveOccurred())
	command := exec.CommandContext(ctx, "bash", "-eu", "-c", script)
	command.Dir = module
	path := strings.Join([]string{testenv.Assets(module), tools, os.Getenv("PATH")}, string(os.PathListSeparator))
	command.Env = append(os.Environ(), "PATH="+path, "KUBECONFIG="+as.Kubectl.Kubeconfig(), "ETCDCTL_ENDPOINTS="+environment.EtcdURL())
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err = command.Run()
	GinkgoWriter.Println(output.String())
	return output.String(), err
}
