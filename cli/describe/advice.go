package describe

import (
	"fmt"
	"slices"
	"strings"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/freezing"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/lock/jobs"
)

// do tells what the user may do, with the command to type.
func (p *page) do(what, command string) {
	p.line("  ", "%s:", what)
	p.uncut("      ", command)
}

// kubectl is a command of kubectl for an object of the namespace.
func (p *page) kubectl(verb, kind, name string, more ...string) string {
	words := []string{verb, kind, name}
	if p.Namespace != "" {
		words = append(words, "-n", p.Namespace)
	}
	return p.Kubectl(append(words, more...)...)
}

// suspend is the command of kubectl that pauses a Job under a lock, or has it wait again.
func (p *page) suspend(job string, isPause bool) string {
	return p.kubectl("patch", "job", job, "--type", "merge", "-p", fmt.Sprintf(`{"spec":{"suspend":%t}}`, isPause))
}

// advice says what the user may do now, with the command to type.
func (p *page) advice() {
	if p.isOfJob() && p.Job.Phase == jobs.Paused {
		p.do("Have Job "+p.Job.Name+" wait for the lock", p.suspend(p.Job.Name, false))
	}
	switch {
	case !p.IsHeld(p.Times.Now):
		p.adviceOnFree()
	case p.isMine():
		p.adviceOnMine()
	default:
		p.adviceOnHeld()
	}
}

func (p *page) adviceOnFree() {
	key := p.Key.Bare()
	refused := v1alpha1.ValidateKey(key)
	switch {
	case p.isOfJob(): // To take the lock by hand would only keep the Job waiting.
		p.adviceOnPods()
		p.do("See the Job", p.kubectl("describe", "job", p.Job.Name))
		return
	case refused != nil:
		p.line("  ", "No new lock may have this KEY: it %v.", refused)
		return
	case p.Rights != nil && !p.Rights.Create:
		p.line("  ", "You may not acquire it: you lack the right to create locks in namespace %s. Ask an administrator.", p.Namespace)
		return
	}
	p.adviceOnPods()
	for _, job := range p.Waiting {
		if job.Refusal != nil {
			p.do("See Job "+job.Name+", which is refused", p.kubectl("describe", "job", job.Name))
			break
		}
	}
	if areAllRefused(p.Waiting) {
		p.line("  ", "Whoever asks for it now may be refused for the same reason.")
		return
	}
	p.do("Run a command under it", p.Command("run", key, "--", "COMMAND"))
	p.do("Take it by hand", p.Command("acquire", key))
}

// areAllRefused reports whether Jobs wait, and each was refused the lock or its start.
func areAllRefused(waiting []locks.Job) bool {
	return len(waiting) > 0 && !slices.ContainsFunc(waiting, func(job locks.Job) bool { return job.Refusal == nil })
}

func (p *page) adviceOnMine() {
	switch key := p.Key.Bare(); {
	case len(p.Lock.Spec.Guards) > 0 && key != freezing.Key:
		p.do("End your freeze", p.Command("thaw", "--key", key))
	case len(p.Lock.Spec.Guards) > 0:
		p.do("End your freeze", p.Command("thaw"))
	case p.HasProof:
		p.do("Release it", p.Command("release", key))
	default:
		p.do("Stop the program that holds it, or end the lock under it", p.Command("free", key))
	}
}

func (p *page) adviceOnHeld() {
	key, spec := p.Key.Bare(), &p.Lock.Spec
	p.adviceOnPods()
	p.do("Wait until it is free", p.Command("wait", key, "--for", "free"))
	switch ref := spec.HolderRef; {
	case ref == nil:
		p.line("  ", "Ask its holder: %s.", spec.Holder)
	case p.Holder == nil || p.Holder.Object != nil:
		p.do("See the "+ref.Kind, p.kubectl("describe", kindOf(ref), ref.Name))
	default:
		p.line("  ", "Ask its holder: see what runs as %s, for %s %s.", spec.Holder, ref.Kind, ref.Name)
	}
	if p.HolderHasNoPods() && p.holderIs(jobs.Running) {
		p.do("Let others have the lock first, by pausing the Job", p.suspend(spec.HolderRef.Name, true))
	}
	switch {
	case p.isUnstarted():
		p.line("  ", "Do not free it: %s would only take it again.", locks.HolderOf(p.Lock))
	case p.holderIs(jobs.Stopping):
		p.line("  ", "To free it does not help: the next Job waits for the same Pods.")
	case p.Rights == nil:
	case p.Rights.Force:
		p.do("End it by force: you have the right, and are told what follows before it is done", p.Command("free", key, "--reason", "WHY"))
	default:
		p.line("  ", "You may not end it by force: that takes the verbs force-release, update and delete")
		p.line("  ", "on locks in namespace %s. Ask an administrator.", p.Namespace)
	}
}

// kindOf names the kind of an object for kubectl. Kinds of other groups than the usual ones need theirs.
func kindOf(ref *v1alpha1.HolderReference) string {
	kind := strings.ToLower(ref.Kind)
	if group, version, ok := strings.Cut(ref.APIVersion, "/"); ok && group != "batch" && group != "apps" {
		kind += "." + version + "." + group
	}
	return kind
}

// adviceOnPods says what to do about Pods that should have ended.
func (p *page) adviceOnPods() {
	for _, pod := range p.overdue(p.Times.Now) {
		p.do("See why Pod "+pod.Name+" does not end", p.kubectl("describe", "pod", pod.Name))
		if node := pod.Spec.NodeName; node != "" {
			p.uncut("      ", p.Kubectl("get", "node", node))
		}
		p.line("  ", "If its node is dead: see that the machine is off, since Kubernetes does not ask it,")
		p.do("and then remove the Pod", p.kubectl("delete", "pod", pod.Name, "--force", "--grace-period", "0"))
	}
}
