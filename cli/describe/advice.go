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

// do tells what the user may do, with the commands to type.
func (p *page) do(what string, commands ...string) {
	p.line("  %s:", what)
	for _, command := range commands {
		p.line("      %s", command)
	}
}

// kubectl is a command of kubectl for an object of the namespace.
func (p *page) kubectl(verb, kind, name string, more ...string) string {
	words := []string{verb, kind, name}
	if p.Namespace != "" {
		words = append(words, "-n", p.Namespace)
	}
	return p.Session.Kubectl(append(words, more...)...)
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
	switch key := p.Key.Bare(); {
	case !p.IsHeld():
		p.adviceOnFree(key)
	case !p.IsMine:
		p.adviceOnHeld(key)
	case len(p.Lock.Spec.Guards) > 0 && key != freezing.Key:
		p.do("End your freeze", p.Session.Command("thaw", "--key", key))
	case len(p.Lock.Spec.Guards) > 0:
		p.do("End your freeze", p.Session.Command("thaw"))
	case p.HasProof:
		p.do("Release it", p.Session.Command("release", key))
	default:
		p.do("Stop the program that holds it, or end the lock under it", p.Session.Command("free", key))
	}
}

func (p *page) adviceOnFree(key string) {
	refused := v1alpha1.ValidateKey(key)
	switch {
	case p.isOfJob(): // To take the lock by hand would only keep the Job waiting.
		p.adviceOnPods()
		p.do("See the Job", p.kubectl("describe", "job", p.Job.Name))
		return
	case refused != nil:
		p.line("  No new lock may have this KEY: it %v.", refused)
		return
	case p.mayCreate != nil && !*p.mayCreate:
		p.line("  You may not acquire it: you lack the right to create locks in namespace %s. Ask an administrator.", p.Namespace)
		return
	}
	p.adviceOnPods()
	isRefused := func(job locks.Job) bool { return job.Refusal != nil }
	if first := slices.IndexFunc(p.Waiting, isRefused); first >= 0 {
		job := p.Waiting[first].Name
		p.do("See Job "+job+", which is refused", p.kubectl("describe", "job", job))
		if !slices.ContainsFunc(p.Waiting, func(job locks.Job) bool { return !isRefused(job) }) {
			p.line("  Whoever asks for it now may be refused for the same reason.")
			return
		}
	}
	p.do("Run a command under it", p.Session.Command("run", key, "--", "COMMAND"))
	p.do("Take it by hand", p.Session.Command("acquire", key))
}

// adviceOnHeld is about a lock of another holder.
func (p *page) adviceOnHeld(key string) {
	ref, holder := p.Lock.Spec.HolderRef, p.Lock.Spec.Holder
	p.adviceOnPods()
	p.do("Wait until it is free", p.Session.Command("wait", key, "--for", "free"))
	switch {
	case ref == nil:
		p.line("  Ask its holder: %s.", holder)
	case p.Holder == nil || p.Holder.Object != nil:
		p.do("See the "+ref.Kind, p.kubectl("describe", kindOf(ref), ref.Name))
	default:
		p.line("  Ask its holder: see what runs as %s, for %s %s.", holder, ref.Kind, ref.Name)
	}
	if p.HolderHasNoPods() && p.holderIs(jobs.Running) {
		p.do("Let others have the lock first, by pausing the Job", p.suspend(ref.Name, true))
	}
	switch {
	case p.holderIs(jobs.Waiting):
		p.line("  Do not free it: %s would only take it again.", locks.HolderOf(p.Lock))
	case p.holderIs(jobs.Stopping):
		p.line("  To free it does not help: the next Job waits for the same Pods.")
	case p.mayForce == nil:
	case *p.mayForce:
		p.do("End it by force: you have the right, and are told what follows before it is done", p.Session.Command("free", key, "--reason", "WHY"))
	default:
		p.line("  You may not end it by force: that takes the verbs force-release, update and delete")
		p.line("  on locks in namespace %s. Ask an administrator.", p.Namespace)
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

// adviceOnPods says what to do about the Pods that keep a Job from its start, and that should have ended, or do not end by
// themselves: a node that is dead does not end them.
func (p *page) adviceOnPods() {
	var pods []Pod
	if p.Holder != nil {
		pods = append(pods, p.Holder.Pods...)
	}
	for _, job := range p.Stopping {
		pods = append(pods, job.Pods...)
	}
	for _, pod := range pods {
		isNodeDead := pod.nodeProblem == nodeGone || pod.nodeProblem == nodeSilent
		if !pod.isLive() || pod.DeletionTimestamp == nil || !pod.DeletionTimestamp.Time.Before(p.times.Now) && !isNodeDead {
			continue
		}
		see := []string{p.kubectl("describe", "pod", pod.Name)}
		if node := pod.Spec.NodeName; node != "" {
			see = append(see, p.Session.Kubectl("get", "node", node))
		}
		p.do("See why Pod "+pod.Name+" does not end", see...)
		p.line("  If its node is dead: see that the machine is off, since Kubernetes does not ask it,")
		p.do("and then remove the Pod", p.kubectl("delete", "pod", pod.Name, "--force", "--grace-period", "0"))
	}
}
