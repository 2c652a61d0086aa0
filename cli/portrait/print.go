package portrait

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/freezing"
	"forrst.dev/lock-operator/cli/human"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/terminal"
	"forrst.dev/lock-operator/lock/jobs"
)

// Printer writes portraits.
type Printer struct {
	Times human.Times
	// Width is that of the terminal. Zero means any.
	Width int
	// Command returns a command for the user to type.
	Command func(args ...string) string
}

// labelWidth is that of the names of facts.
const labelWidth = 12

// page is a portrait that is being written.
type page struct {
	Printer
	*Portrait
	text strings.Builder
}

// Print writes the portrait.
func (p Printer) Print(out io.Writer, portrait *Portrait) error {
	page := &page{Printer: p, Portrait: portrait}
	where := ""
	if portrait.Namespace != "" {
		where = " in namespace " + portrait.Namespace
	}
	page.job()
	page.line("", "Lock %s%s", portrait.Key.Bare(), where)
	if portrait.IsHeld(p.Times.Now) {
		page.held()
	} else {
		page.free()
	}
	page.waiters()
	page.leaving()
	page.history()
	page.advice()
	for index, unknown := range portrait.Unknown {
		page.fact(first(index, "Not known"), "%s", unknown)
	}
	_, err := io.WriteString(out, page.text.String())
	return err
}

// line writes a line of clean text, cut to the width of the terminal.
func (p *page) line(indent, format string, args ...any) {
	text := indent + terminal.Clean(fmt.Sprintf(format, args...))
	if p.Width > 0 {
		text = terminal.Cut(text, p.Width)
	}
	p.text.WriteString(strings.TrimRight(text, " ") + "\n")
}

func (p *page) fact(label, format string, args ...any) {
	p.line("  "+terminal.Pad(label, labelWidth), format, args...)
}

// message writes a message whose end may matter most, so it is not cut.
func (p *page) message(text string) {
	p.text.WriteString(terminal.Clean("  "+terminal.Pad("", labelWidth)+text) + "\n")
}

// typed tells what the user may do, with the command to type. That is not cut: it is to be copied.
func (p *page) typed(what, command string) {
	p.line("  ", "%s:", what)
	p.text.WriteString("      " + terminal.Clean(command) + "\n")
}

// first returns the label for the first of several lines.
func first(index int, label string) string {
	if index == 0 {
		return label
	}
	return ""
}

// job says what the Job has to do with the lock whose name was given in place of a key.
func (p *page) job() {
	if p.Job == nil {
		return
	}
	key := p.Job.ID.Key.Bare()
	does := fmt.Sprintf("Job %s is %s; its lock is %s", p.Job.Name, strings.ToLower(string(p.Job.Phase)), key)
	place := slices.IndexFunc(p.Waiting, func(job locks.WaitingJob) bool { return job.Turn.UID == p.Job.UID })
	switch {
	case p.Job.Holds(p.Lock) && p.IsHeld(p.Times.Now):
		does = fmt.Sprintf("Job %s holds %s", p.Job.Name, key)
	case p.Job.Phase == jobs.Paused:
		does = fmt.Sprintf("Job %s is paused, and does not wait for %s", p.Job.Name, key)
	case p.Job.Phase == jobs.Waiting && p.Job.Refusal != nil:
		does = fmt.Sprintf("Job %s waits for %s, was %s", p.Job.Name, key, p.refused(p.Job.Refusal))
	case p.Job.Phase == jobs.Waiting:
		does = fmt.Sprintf("Job %s waits for %s", p.Job.Name, key)
		if place >= 0 {
			does += fmt.Sprintf(" at place %d", place+1)
		}
	}
	if p.ID == p.Job.ID {
		p.line("", "%s", does)
		return
	}
	p.line("", "No lock %s; %s:", p.Key.Bare(), does)
	p.text.WriteString("    " + terminal.Clean(p.Command("who", key)) + "\n\n")
}

// refused says when a Job was refused its lock or its start, and is tried again.
func (p *page) refused(refusal *jobs.Refusal) string {
	again := "in its turn"
	if refusal.Until.After(p.Times.Now) {
		again = p.Times.In(refusal.Until)
	}
	return fmt.Sprintf("refused %s, and is tried again %s", p.Times.Ago(refusal.At), again)
}

func (p *page) free() {
	if p.Lock == nil {
		p.fact("State", "free: no holder")
	} else {
		p.fact("State", "free: the last holder, %s, let it expire %s", locks.HolderOf(p.Lock), p.Times.Ago(at(p.Lock.Spec.ExpireTime)))
	}
	if len(p.HeldIn) > 0 {
		p.fact("Held in", "namespace %s", strings.Join(p.HeldIn, ", "))
	}
	if len(p.Nearby) > 0 {
		p.fact("Held here", "%s. Did you mean that?", strings.Join(p.Nearby, ", "))
	}
}

func (p *page) held() {
	spec := &p.Lock.Spec
	row := locks.RowOf(p.Lock)
	state := "held"
	if p.isMine() {
		state = "held by you"
	}
	p.fact("State", "%s", state)
	holder := row.Holder
	if row.Holder != row.Identity {
		holder += " (" + row.Identity + ")"
	}
	p.fact("Holder", "%s", holder)
	for index, line := range p.Alive(p.Portrait) {
		p.fact(first(index, "Alive"), "%s", line)
	}
	if why := p.WhyNoPods(p.Portrait); why != "" {
		p.message(why)
	}
	reason := "none was given"
	if spec.Reason != "" {
		reason = spec.Reason
	}
	p.fact("Reason", "%s", reason)
	p.fact("Since", "%s", p.Times.Ago(row.Acquired))
	renewed, unless := p.Times.Renewed(row.Acquired, row.Renewed), ""
	if row.TTL > 0 {
		renewed += "; each renewal lasts " + human.For(row.TTL)
		unless = ", unless renewed"
	}
	p.fact("Renewed", "%s", renewed)
	p.fact("Expires", "%s%s", p.Times.In(row.Expires), unless)
	p.fact("Fencing", "token %d", row.FencingToken)
	for index, guard := range spec.Guards {
		p.fact(first(index, "Guards"), "%s: only the holder may change them", guarded(guard))
	}
}

// Alive returns lines that say whether the holder of a lock is alive. There are none if that was not asked
// for.
func (p Printer) Alive(portrait *Portrait) []string {
	behind := portrait.Behind
	switch {
	case portrait.Lock.Spec.HolderRef == nil:
		return []string{"not known: the holder names no Pod or Job; if it is gone, the lock expires"}
	case behind == nil:
		return nil
	case behind.Gone:
		return []string{fmt.Sprintf("no: %s %s is %s", behind.Kind, behind.Name, behind.State)}
	case portrait.isUnstarted():
		return p.unstarted(portrait)
	}
	alive := "yes"
	if !behind.IsAlive {
		alive = "no"
	}
	details := ""
	if len(behind.Details) > 0 {
		details = ", " + strings.Join(behind.Details, ", ")
	}
	switch {
	case behind.Phase == jobs.Stopping:
		alive = "stopping, and keeps the lock until its Pods have ended"
	case behind.isPending():
		alive = "started, but no Pod runs yet"
	case behind.IsWithoutPods():
		alive = behind.withoutPods()
	case behind.State == exists:
		alive = "not known" // That it exists does not say that anything works.
	case behind.isOnNodesInTrouble():
		alive = "not known"
		for index, pod := range behind.Pods {
			isTold := slices.ContainsFunc(behind.Pods[:index], func(other Pod) bool { return other.Node == pod.Node })
			if pod.NodeTrouble != "" && !isTold {
				alive += "; node " + p.node(pod)
			}
		}
		alive = strings.Replace(alive, "; ", ": ", 1)
		return append([]string{alive, fmt.Sprintf("%s %s %s%s", behind.Kind, behind.Name, state(behind), details)}, p.pods(behind.Pods)...)
	}
	return append([]string{fmt.Sprintf("%s: %s %s %s%s", alive, behind.Kind, behind.Name, state(behind), details)}, p.pods(behind.Pods)...)
}

// WhyNoPods returns the last attempt to create a Pod for the Job that holds the lock, if that has none, and the attempt
// has failed; otherwise empty.
func (p Printer) WhyNoPods(portrait *Portrait) string {
	if portrait.Behind == nil || portrait.Behind.FailedCreate.Time.IsZero() {
		return ""
	}
	failed := portrait.Behind.FailedCreate
	return p.Times.Ago(failed.Time) + ", " + failed.What
}

// unstarted says why a Job that has the lock has not started.
func (p Printer) unstarted(portrait *Portrait) (lines []string) {
	if len(portrait.Leaving) == 0 {
		return []string{fmt.Sprintf("has the lock, has not started: the operator is about to start Job %s", portrait.Behind.Name)}
	}
	names := make([]string, 0, len(portrait.Leaving))
	for _, job := range portrait.Leaving {
		names = append(names, job.Name)
	}
	lines = []string{"has the lock, has not started: waits for the Pods of Job " + strings.Join(names, ", ")}
	for _, job := range portrait.Leaving {
		lines = append(lines, p.pods(job.Pods)...)
	}
	return lines
}

// node says what is wrong with the node of a Pod.
func (p Printer) node(pod Pod) string {
	text := pod.Node + " " + pod.NodeTrouble
	if !pod.NodeTroubleSince.IsZero() {
		text += ", " + p.Times.During(pod.NodeTroubleSince)
	}
	return text
}

func (p Printer) pods(pods []Pod) (lines []string) {
	for _, pod := range pods {
		lines = append(lines, p.pod(pod))
	}
	return lines
}

func (p Printer) pod(pod Pod) string {
	text := "Pod " + pod.Name + ": " + pod.Phase
	switch {
	case !pod.Deleted.IsZero():
		text = "Pod " + pod.Name + ": Terminating"
	case pod.Phase == string(corev1.PodPending):
		text = "Pod " + pod.Name + ": has not begun, Pending " + p.Times.During(pod.Created)
	}
	if pod.Node != "" {
		text += " on node " + pod.Node
		if pod.NodeTrouble != "" {
			text += " (which " + pod.NodeTrouble + ")"
		}
	}
	if !pod.Deleted.IsZero() {
		text += " " + p.Times.During(pod.Deleted)
	}
	if !pod.Started.IsZero() {
		text += ", started " + p.Times.Ago(pod.Started)
	}
	if pod.Restarts > 0 {
		text += fmt.Sprintf(", restarted %d times", pod.Restarts)
	}
	if !pod.LastLog.IsZero() {
		text += ", last log line " + p.Times.Ago(pod.LastLog)
	}
	return text
}

// isPending reports whether there are Pods, and none of them has begun that may still work.
func (b *Behind) isPending() bool {
	is := func(phase corev1.PodPhase) bool {
		return slices.ContainsFunc(b.Pods, func(pod Pod) bool { return pod.Phase == string(phase) })
	}
	return b.IsAlive && is(corev1.PodPending) && !is(corev1.PodRunning) && !is(corev1.PodUnknown)
}

func state(behind *Behind) string {
	if behind.IsAlive && behind.State != exists {
		return "is " + behind.State
	}
	return behind.State
}

func (p *page) waiters() {
	for index, job := range p.Waiting {
		priority := ""
		if job.Turn.Priority != 0 {
			priority = fmt.Sprintf(", priority %d", job.Turn.Priority)
		}
		refused := ""
		if job.Refusal != nil {
			refused = ": " + p.refused(job.Refusal)
		}
		p.fact(first(index, "Waiting"), "%d. Job/%s, %s%s%s", index+1, job.Name, p.Times.During(job.Turn.WaitsSince), priority, refused)
		if job.Refusal != nil {
			p.message("   " + job.Refusal.Why)
		}
	}
	if p.Callers != nil {
		p.callers()
		return
	}
	known := "not known: no Job shows"
	if len(p.Waiting) > 0 {
		known = "and perhaps more"
	}
	p.fact(first(len(p.Waiting), "Waiting"), "%s. Callers through a façade show with --server,", known)
	p.fact("", "those that take locks directly, as kubectl lock run does, nowhere")
}

// callers shows those that wait through a façade.
func (p *page) callers() {
	if len(p.Callers) == 0 {
		p.fact("Waiting", "no caller")
	}
	for index := range p.Callers {
		caller := &p.Callers[index]
		name := locks.Person(caller.Holder, caller.Namespace)
		if ref := caller.HolderRef; ref != nil {
			name = ref.Kind + "/" + ref.Name
		}
		text := fmt.Sprintf("%d. %s, %s", caller.Place, name, p.Times.During(caller.Since))
		if caller.Priority != 0 {
			text += fmt.Sprintf(", priority %d", caller.Priority)
		}
		if !caller.Until.IsZero() {
			text += ", gives up " + p.Times.In(caller.Until)
		}
		if caller.Reason != "" {
			text += ": " + caller.Reason
		}
		p.fact(first(index, "Waiting"), "%s", text)
	}
	if p.AreMore {
		p.fact("", "and more")
	}
}

// leaving shows the Jobs whose Pods keep the next one from its start.
func (p *page) leaving() {
	for index, job := range p.Leaving {
		does := "its Pods have not ended"
		switch {
		case job.QueuesAgain:
			does = "stopping; it queues again when its Pods have ended"
		case job.Phase == jobs.Stopping:
			does = "deleted, and its Pods have not ended"
		}
		p.fact(first(index, "Stopping"), "Job/%s: %s", job.Name, does)
		if p.IsHeld(p.Times.Now) && p.isUnstarted() {
			continue // They are shown as what the holder waits for.
		}
		for _, line := range p.pods(job.Pods) {
			p.fact("", "%s", line)
		}
	}
}

func (p *page) history() {
	for index, fact := range p.History {
		p.fact(first(index, "History"), "%s  %s", terminal.Pad(p.Times.Ago(fact.Time), 9), fact.What)
	}
}

// isMine reports whether the user is the holder.
func (p *page) isMine() bool { return p.Me != "" && p.Lock.Spec.Holder == p.Me }

// advice says what the user may do now, with the command to type.
func (p *page) advice() {
	key := p.Key.Bare()
	p.text.WriteString("\nWhat you may do now:\n")
	do := func(what string, args ...string) { p.typed(what, p.Command(args...)) }
	isOfJob := p.Job != nil && p.ID == p.Job.ID
	if isOfJob && p.Job.Phase == jobs.Paused {
		p.typed("Have Job "+p.Job.Name+" wait for the lock", suspend(p.Job.Name, p.Namespace, false))
	}
	if !p.IsHeld(p.Times.Now) {
		if isOfJob { // To take the lock by hand would only keep the Job waiting.
			p.adviceOnPods()
			p.typed("See the Job", describe(&v1alpha1.HolderReference{Kind: "Job", Name: p.Job.Name}, p.Namespace))
			return
		}
		if p.May.Known && !p.May.Create {
			p.line("  ", "You may not acquire it: you lack the right to create locks in namespace %s. Ask an administrator.", p.Namespace)
			return
		}
		p.adviceOnPods()
		p.adviceOnRefusals()
		do("Run a command under it", "run", key, "--", "COMMAND")
		do("Take it by hand", "acquire", key)
		return
	}
	if p.isMine() {
		switch {
		case len(p.Lock.Spec.Guards) > 0:
			thaw := []string{"thaw"}
			if key != freezing.Key {
				thaw = append(thaw, "--key", key)
			}
			do("End your freeze", thaw...)
		case p.HasProof:
			do("Release it", "release", key)
		default:
			do("Stop the program that holds it, or end the lock under it", "free", key)
		}
		return
	}
	p.adviceOnPods()
	do("Wait until it is free", "wait", key, "--for", "free")
	if ref := p.Lock.Spec.HolderRef; ref != nil && (p.Behind == nil || !p.Behind.Gone) {
		p.typed("See the "+ref.Kind, describe(ref, p.Namespace))
	} else {
		p.line("  ", "Ask its holder: %s.", p.ask())
	}
	if p.Behind != nil && p.Behind.IsWithoutPods() && p.Behind.Phase == jobs.Running {
		p.typed("Let others have the lock first, by pausing the Job", suspend(p.Behind.Name, p.Namespace, true))
	}
	p.adviceOnForce(do)
}

// adviceOnRefusals says where the first Job tells why it does not get the lock, if it was refused.
func (p *page) adviceOnRefusals() {
	for _, job := range p.Waiting {
		if job.Refusal != nil {
			p.typed("See Job "+job.Name+", which is refused", describe(&v1alpha1.HolderReference{Kind: "Job", Name: job.Name}, p.Namespace))
			return
		}
	}
}

// adviceOnForce says whether to end the lock by force.
func (p *page) adviceOnForce(do func(what string, args ...string)) {
	switch {
	case p.isUnstarted():
		p.line("  ", "Do not free it: %s would only take it again.", locks.HolderOf(p.Lock))
	case p.Behind != nil && p.Behind.Phase == jobs.Stopping:
		p.line("  ", "To free it does not help: the next Job waits for the same Pods.")
	case p.May.Force:
		do("End it by force: you have the right, and are told what follows before it is done", "free", p.Key.Bare(), "--reason", "WHY")
	case p.May.Known:
		p.line("  ", "You may not end it by force: that takes the verbs force-release, update and delete")
		p.line("  ", "on locks in namespace %s. Ask an administrator.", p.Namespace)
	}
}

// adviceOnPods says what to do about Pods that should have ended.
func (p *page) adviceOnPods() {
	of := in(p.Namespace)
	for _, pod := range p.overdue(p.Times.Now) {
		p.line("  ", "See why Pod %s does not end:", pod.Name)
		p.text.WriteString("      " + terminal.Clean("kubectl describe pod "+session.Quote(pod.Name)+of) + "\n")
		if pod.Node != "" {
			p.text.WriteString("      " + terminal.Clean("kubectl get node "+session.Quote(pod.Node)) + "\n")
		}
		p.line("  ", "If its node is dead: see that the machine is off, since Kubernetes does not ask it,")
		p.line("  ", "and then remove the Pod:")
		p.text.WriteString("      " + terminal.Clean("kubectl delete pod "+session.Quote(pod.Name)+of+" --force --grace-period 0") + "\n")
	}
}

// describe is the command of kubectl that shows the object of a holder. Kinds of other groups than the
// usual ones need theirs.
func describe(ref *v1alpha1.HolderReference, namespace string) string {
	kind := strings.ToLower(ref.Kind)
	if group, version, ok := strings.Cut(ref.APIVersion, "/"); ok && group != "batch" && group != "apps" {
		kind += "." + version + "." + group
	}
	return "kubectl describe " + session.Quote(kind) + " " + session.Quote(ref.Name) + in(namespace)
}

// suspend is the command of kubectl that pauses a Job under a lock, or has it wait again.
func suspend(job, namespace string, isPause bool) string {
	return "kubectl patch job " + session.Quote(job) + in(namespace) + fmt.Sprintf(` --type merge -p '{"spec":{"suspend":%t}}'`, isPause)
}

// in is the flag of kubectl for a namespace.
func in(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " -n " + session.Quote(namespace)
}

// ask says whom to ask.
func (p *page) ask() string {
	spec := &p.Lock.Spec
	if spec.HolderRef != nil {
		return "see what runs as " + spec.Holder + ", for " + spec.HolderRef.Kind + " " + spec.HolderRef.Name
	}
	return spec.Holder
}

func guarded(guard v1alpha1.Guard) string {
	resource := guard.Resource
	if guard.Group != "" {
		resource += "." + guard.Group
	}
	if guard.Name != "" {
		return resource + " " + guard.Name
	}
	if selector := metav1.FormatLabelSelector(guard.Selector); guard.Selector != nil && selector != "" && selector != "<none>" {
		return resource + " with " + selector
	}
	return "all " + resource
}

func at(stamp *v1alpha1.Timestamp) time.Time {
	if stamp == nil {
		return time.Time{}
	}
	return stamp.Time
}
