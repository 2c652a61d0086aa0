package clients_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
)

// Each example of docs/clients.md runs as it stands, but for the address of the service and the folder of the token. While one
// holds the lock, the next waits for it.
var _ = Describe("The examples of docs/clients.md", Ordered, func() {
	var (
		service *facade
		places  *strings.Replacer
		text    string
	)
	BeforeAll(func(ctx context.Context) {
		document, err := os.ReadFile("../../docs/clients.md")
		Expect(err).NotTo(HaveOccurred())
		text = string(document)
		service = startFacade(ctx, true, "--facade-max-block=1m")
		secrets := filepath.Dir(service.tokenFile)
		// The service has no certificate here, but the programs read the authority.
		Expect(os.WriteFile(filepath.Join(secrets, "ca.crt"), environment.Admin.Config.CAData, 0o600)).To(Succeed())
		places = strings.NewReplacer("https://lock-operator-facade.forrst-system.svc", "http://"+service.address,
			"/var/run/secrets/lock-operator", secrets, "namespaces/payments", "namespaces/"+service.namespace, `namespace: "payments"`, `namespace: "`+service.namespace+`"`)
	})

	DescribeTable("take the lock and release it", func(ctx context.Context, language, file string, program ...string) {
		if _, err := exec.LookPath(program[0]); err != nil {
			// A person need not have every language. Where changes are judged, each example runs.
			Expect(os.Getenv("CI")).To(BeEmpty(), "%s is not installed", program[0])
			Skip(program[0] + " is not installed")
		}
		found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(text)
		Expect(found).NotTo(BeNil())
		folder := GinkgoT().TempDir()
		if language == "ts" {
			folder = compiledExample(ctx)
		}
		Expect(os.WriteFile(filepath.Join(folder, file), []byte(places.Replace(found[1])), 0o600)).To(Succeed())
		if language == "ts" {
			compile := exec.CommandContext(ctx, filepath.Join(installed(ctx), "node_modules/.bin/tsc"), "-p", folder)
			compile.Dir = folder
			run(compile)
		}
		command := exec.CommandContext(ctx, program[0], program[1:]...)
		command.Dir = folder
		session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		Eventually(session).WithTimeout(patience).Should(gexec.Exit(0))
		Expect(string(session.Out.Contents())).To(MatchRegexp(`\d`), "the fencing token")
		Eventually(func() []string { return service.keys(ctx) }).Should(BeEmpty())
	},
		Entry("in TypeScript", "ts", "example.ts", "node", "example.js"),
		Entry("in Python", "python", "example.py", "python3", "example.py"),
		Entry("in Java", "java", "Report.java", "java", "Report.java"),
		Entry("in a shell", "sh", "example.sh", "bash", "example.sh"),
	)
})

// compiledExample returns a folder for a program that imports the client.
func compiledExample(ctx context.Context) string {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	scope := filepath.Join(folder, "node_modules", "@forrst")
	Expect(os.MkdirAll(scope, 0o700)).To(Succeed())
	Expect(os.Symlink(installed(ctx), filepath.Join(scope, "lock"))).To(Succeed())
	Expect(os.Symlink(filepath.Join(installed(ctx), "node_modules", "@types"), filepath.Join(folder, "node_modules", "@types"))).To(Succeed())
	Expect(os.WriteFile(filepath.Join(folder, "package.json"), []byte(`{"type": "module"}`), 0o600)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(folder, "tsconfig.json"), []byte(`{"compilerOptions": {"strict": true, "module": "nodenext", "target": "es2022",
		"lib": ["es2023", "esnext.disposable"], "types": ["node"], "skipLibCheck": true}, "files": ["example.ts"]}`), 0o600)).To(Succeed())
	return folder
}
