//go:build linux

package run_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// page has the snippets.
const page = "../../docs/cli-run.md"

// snippet returns the first block of code below a heading of the page.
func snippet(t *testing.T, heading string) string {
	t.Helper()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^### " + heading + "$.*?^```\\w+\n(.*?)^```$").FindSubmatch(content)
	if found == nil {
		t.Fatalf("no code below %q", heading)
	}
	return string(found[1])
}

// fromYAML reads the snippet below a heading.
func fromYAML(t *testing.T, heading string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(snippet(t, heading)), into); err != nil {
		t.Fatalf("%s: %v", heading, err)
	}
}

// job is where a system runs a snippet: a folder with the scripts of the snippets, and a PATH with kubectl, which finds
// the plugin, which asks the façade.
type job struct {
	service     *service
	folder      string
	environment []string
}

func newJob(t *testing.T) *job {
	t.Helper()
	j := &job{service: newService(t), folder: t.TempDir()}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(j.folder, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"backup.sh", "deploy.sh", "migrate.sh", "release.sh"} {
		write(name, `echo "$0 under $FORRST_LOCK_KEY" >"$RAN"`)
	}
	write("kubectl", `[ "$1" = lock ] || exit 99; shift; exec kubectl-lock "$@"`)
	write("kubectl-lock", programVariable+`=1; export `+programVariable+`; verb=$1; shift; exec "$PROGRAM" "$verb" --server "$FACADE" "$@"`)
	j.environment = append(os.Environ(), "PATH="+j.folder+":"+os.Getenv("PATH"), "PROGRAM="+os.Args[0], "FACADE="+j.service.url, "RAN="+j.ran(),
		"XDG_RUNTIME_DIR="+t.TempDir(),
		"CI_PROJECT_PATH_SLUG=group-shop", "CI_JOB_URL=https://gitlab.example.com/1", "GITHUB_REPOSITORY=group/shop", "GITHUB_RUN_ID=7")
	return j
}

func (j *job) ran() string { return filepath.Join(j.folder, "ran") }

// run returns the exit status of a program, and what its script has said.
func (j *job) run(t *testing.T, argv ...string) (status int, ran string) {
	t.Helper()
	_ = os.Remove(j.ran())
	program := exec.CommandContext(t.Context(), filepath.Join(j.folder, argv[0]), argv[1:]...)
	if _, err := os.Stat(program.Path); err != nil {
		program = exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	}
	program.Dir, program.Env = j.folder, j.environment
	output, err := program.CombinedOutput()
	if ended, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || ended.ExitCode() < 0) {
		t.Fatalf("%q: %v: %s", argv, err, output)
	}
	text, _ := os.ReadFile(j.ran())
	t.Logf("%q: exit status %d: %s%s", argv, program.ProcessState.ExitCode(), output, text)
	return program.ProcessState.ExitCode(), strings.TrimSpace(string(text))
}

// wantRun checks that a program runs a script under the key, and that the lock is free afterwards.
func (j *job) wantRun(t *testing.T, script, key string, argv ...string) {
	t.Helper()
	status, ran := j.run(t, argv...)
	if status != 0 || !strings.HasSuffix(ran, script+" under "+key) {
		t.Errorf("exit status %d, ran %q", status, ran)
	}
	j.service.wantFree(t)
}

// wantBusy checks the exit status of a program whose lock is held, which must not run.
func (j *job) wantBusy(t *testing.T, key string, want int, argv ...string) {
	t.Helper()
	request := lock.Request{Acquisition: rules.Acquisition{Key: key, Owner: "rival", TTL: time.Hour}}
	if _, err := j.service.Acquire(t.Context(), namespace, request); err != nil {
		t.Fatal(err)
	}
	if status, ran := j.run(t, argv...); status != want || ran != "" {
		t.Errorf("exit status %d, want %d, ran %q", status, want, ran)
	}
}

func TestSnippetOfAPod(t *testing.T) {
	var pod struct{ Spec corev1.PodSpec }
	if err := yaml.UnmarshalStrict([]byte(snippet(t, "Pod")), &pod); err != nil {
		t.Fatal(err)
	}
	j := newJob(t)
	main := pod.Spec.Containers[0]
	for _, variable := range main.Env {
		mounts := 0
		for _, mount := range main.VolumeMounts {
			if mount.MountPath == variable.Value && !mount.ReadOnly {
				mounts++
			}
		}
		if mounts != 1 {
			t.Errorf("%s=%s is not where something is mounted", variable.Name, variable.Value)
		}
	}
	// The image has other paths than this machine.
	argv := strings.Split(strings.NewReplacer("/tools/", "", "/backup.sh", "./backup.sh").Replace(strings.Join(main.Command, "\n")), "\n")
	j.wantRun(t, "backup.sh", "backup", argv...)
	// The image has the program alone, at its root.
	for _, mount := range main.VolumeMounts {
		if mount.MountPath+"/kubectl-lock" == main.Command[0] {
			return
		}
	}
	t.Errorf("nothing is mounted at the folder of %s", main.Command[0])
}

// GitLab runs a script by bash or, in an image without it, by sh, with these options.
func TestSnippetOfGitLab(t *testing.T) {
	var file map[string]struct{ Script []string }
	fromYAML(t, "GitLab CI", &file)
	script := strings.Join(file["deploy"].Script, "\n")
	j := newJob(t)
	j.wantRun(t, "deploy.sh", "deploy:group-shop", "bash", "-c", "set -eo pipefail; set +o noclobber; "+script)
	j.wantRun(t, "deploy.sh", "deploy:group-shop", "sh", "-c", "set -e; set +o noclobber; "+script)
}

// GitHub writes a step to a file, and runs bash -e on it unless the step names a shell.
func TestSnippetOfGitHub(t *testing.T) {
	var file struct {
		Jobs map[string]struct {
			Steps []struct{ Uses, Run string }
		}
	}
	fromYAML(t, "GitHub Actions", &file)
	j := newJob(t)
	for _, step := range file.Jobs["deploy"].Steps {
		if step.Run == "" {
			continue
		}
		path := filepath.Join(t.TempDir(), "step.sh")
		if err := os.WriteFile(path, []byte(step.Run), 0o600); err != nil {
			t.Fatal(err)
		}
		j.wantRun(t, "deploy.sh", "deploy:shop", "bash", "-e", path)
		return
	}
	t.Error("no step runs anything")
}

// Argo and Tekton run no shell.
func TestSnippetOfArgoWorkflows(t *testing.T) {
	var file struct {
		Templates []struct {
			Container     corev1.Container
			RetryStrategy struct{ Expression string }
		}
	}
	fromYAML(t, "Argo Workflows", &file)
	template := file.Templates[0]
	j := newJob(t)
	j.wantRun(t, "migrate.sh", "db:migrate", template.Container.Command...)
	status := regexp.MustCompile(`^lastRetry\.exitCode == "(\d+)"$`).FindStringSubmatch(template.RetryStrategy.Expression)
	if status == nil {
		t.Fatalf("expression %q", template.RetryStrategy.Expression)
	}
	want, _ := strconv.Atoi(status[1])
	j.wantBusy(t, "db:migrate", want, template.Container.Command...)
}

func TestSnippetOfTekton(t *testing.T) {
	var file struct{ Steps []corev1.Container }
	fromYAML(t, "Tekton", &file)
	j := newJob(t)
	argv := slices.Concat(file.Steps[0].Command, file.Steps[0].Args)
	for i := range argv {
		argv[i] = strings.ReplaceAll(argv[i], "$(params.component)", "shop")
	}
	j.wantRun(t, "release.sh", "release:shop", argv...)
}

// Jenkins runs sh -xe. The script of the pipeline judges the exit status.
func TestSnippetOfJenkins(t *testing.T) {
	text := snippet(t, "Jenkins")
	script := regexp.MustCompile(`script: '([^']*)'`).FindStringSubmatch(text)
	status := regexp.MustCompile(`status == (\d+)\) \{ unstable`).FindStringSubmatch(text)
	if script == nil || status == nil {
		t.Fatal("no script, or no status")
	}
	j := newJob(t)
	j.wantRun(t, "deploy.sh", "deploy:shop", "sh", "-xe", "-c", script[1])
	want, _ := strconv.Atoi(status[1])
	j.wantBusy(t, "deploy:shop", want, "sh", "-xe", "-c", script[1])
}
