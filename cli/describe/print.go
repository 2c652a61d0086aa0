package describe

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/human"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/terminal"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/rules"
)

// Printer writes facts.
type Printer struct {
	Times human.Times
	// Width is the width of the terminal, in columns. Zero means any.
	Width int
	// Command returns a command of kubectl lock for the user to type, and Kubectl one of kubectl itself.
	Command, Kubectl func(args ...string) string
}

// labelWidth is the width of the names of fields.
const labelWidth = 12

// page is what is being printed.
type page struct {
	Printer
	*Facts
	text strings.Builder
}

// Print writes the facts, and what the user may do now.
func (p Printer) Print(out io.Writer, facts *Facts) error {
	page := &page{Printer: p, Facts: facts}
	page.job()
	where := ""
	if facts.Namespace != "" {
		where = " in namespace " + facts.Namespace
	}
	page.line("", "Lock %s%s", facts.Key.Bare(), where)
	if facts.IsHeld(p.Times.Now) {
		page.held()
	} else {
		page.free()
	}
	page.waiting()
	page.callers()
	page.stopping()
	var history []string
	for _, entry := range facts.History {
		history = append(history, terminal.Pad(p.Times.Ago(entry.Time), 9)+"  "+entry.What)
	}
	page.fields("History", history)
	page.line("", "")
	page.line("", "What you may do now:")
	page.advice()
	page.fields("Not known", facts.Unknown)
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

// uncut writes a line whose end matters: a command to copy, or a message.
func (p *page) uncut(indent, text string) {
	p.text.WriteString(indent + terminal.Clean(text) + "\n")
}

func (p *page) field(label, format string, args ...any) {
	p.line("  "+terminal.Pad(label, labelWidth), format, args...)
}

// fields writes a field of several lines, the first one with the label; nothing if there are none.
func (p *page) fields(label string, lines []string) {
	for _, line := range lines {
		p.field(label, "%s", line)
		label = ""
	}
}

// message continues a field with a line that is not cut.
func (p *page) message(text string) { p.uncut("  "+terminal.Pad("", labelWidth), text) }

// job says what the Job does with its lock whose name was given in place of a key.
func (p *page) job() {
	job := p.Job
	if job == nil {
		return
	}
	key := job.Lock.Key.Bare()
	does := fmt.Sprintf("is %s; its lock is %s", strings.ToLower(string(job.Phase)), key)
	switch {
	case job.Holds(p.Lock) && p.IsHeld(p.Times.Now):
		does = "holds " + key
	case job.Phase == jobs.Paused:
		does = "is paused, and does not wait for " + key
	case job.Phase == jobs.Waiting && job.Refusal != nil:
		does = fmt.Sprintf("waits for %s, was %s", key, p.refused(job.Refusal))
	case job.Phase == jobs.Waiting:
		does = "waits for " + key
		if place := slices.IndexFunc(p.Waiting, func(other locks.Job) bool { return other.UID == job.UID }); place >= 0 {
			does += fmt.Sprintf(" at place %d", place+1)
		}
	}
	if p.isOfJob() {
		p.line("", "Job %s %s", job.Name, does)
		if job.NotRun != "" {
			p.uncut("  ", job.NotRun)
		}
		return
	}
	p.line("", "No lock %s; Job %s %s:", p.Key.Bare(), job.Name, does)
	p.uncut("    ", p.Command("who", key))
	p.line("", "")
}

// isOfJob reports whether the lock is the lock of the Job whose name was given.
func (p *page) isOfJob() bool { return p.Job != nil && p.ID == p.Job.Lock }

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
		p.field("State", "free: no holder")
	} else {
		row := locks.RowOf(p.Lock)
		p.field("State", "free: the last holder, %s, let it expire %s", row.Holder, p.Times.Ago(row.Expires))
	}
	if len(p.HeldIn) > 0 {
		p.field("Held in", "namespace %s", strings.Join(p.HeldIn, ", "))
	}
	if len(p.Nearby) > 0 {
		p.field("Held here", "%s. Did you mean that?", strings.Join(p.Nearby, ", "))
	}
}

func (p *page) held() {
	row := locks.RowOf(p.Lock)
	state, holder, reason := "held", row.Holder, row.Reason
	isConnected := rules.ConnectionOf(p.Lock) != ""
	switch {
	case isConnected && p.isMine():
		state = "held by a connection of yours"
	case isConnected:
		state = "held by a connection"
	case p.isMine():
		state = "held by you"
	}
	if row.Holder != row.Identity {
		holder += " (" + row.Identity + ")"
	}
	if reason == "" {
		reason = "none was given"
	}
	p.field("State", "%s", state)
	p.field("Holder", "%s", holder)
	p.fields("Alive", p.Alive(p.Facts))
	if why := p.WhyNoPods(p.Facts); why != "" {
		p.message(why)
	}
	p.field("Reason", "%s", reason)
	p.field("Since", "%s", p.Times.Ago(row.Acquired))
	renewed, unless := p.Times.Renewed(row.Acquired, row.Renewed), ""
	if row.TTL > 0 {
		renewed += "; each renewal lasts " + human.For(row.TTL)
		unless = ", unless renewed"
	}
	p.field("Renewed", "%s", renewed)
	p.field("Expires", "%s%s", p.Times.In(row.Expires), unless)
	p.field("Fencing", "token %d", row.FencingToken)
	var guards []string
	for _, guard := range p.Lock.Spec.Guards {
		guards = append(guards, guarded(guard)+": only the holder may change them")
	}
	p.fields("Guards", guards)
}

// isMine reports whether the user is the holder.
func (p *page) isMine() bool { return p.Me != "" && p.Lock.Spec.Holder == p.Me }

// Alive returns lines that say whether the holder of a lock is alive. There are none if that is not known.
func (p Printer) Alive(facts *Facts) []string {
	ref, holder := facts.Lock.Spec.HolderRef, facts.Holder
	switch {
	case ref == nil && rules.ConnectionOf(facts.Lock) != "":
		return []string{"as far as its connection shows; when that ends, the lock is free"}
	case ref == nil:
		return []string{"not known: the holder names no Pod or Job; if it is gone, the lock expires"}
	case holder == nil:
		return nil
	case holder.IsReplaced:
		return []string{fmt.Sprintf("no: %s %s is gone; another %[1]s has its name now", ref.Kind, ref.Name)}
	case holder.Object == nil:
		return []string{fmt.Sprintf("no: %s %s is gone", ref.Kind, ref.Name)}
	case facts.isUnstarted():
		return p.unstarted(facts)
	}
	object, pods := fmt.Sprintf("%s %s %s", ref.Kind, ref.Name, stateOf(holder)), p.pods(holder.Pods)
	job, isJob := holder.Object.(*batchv1.Job)
	_, isPod := holder.Object.(*corev1.Pod)
	alive := "yes"
	switch {
	case facts.holderIs(jobs.Stopping):
		alive = "stopping, and keeps the lock until its Pods have ended"
	case !holder.isAlive():
		alive = "no"
	case holder.isPending():
		alive = "started, but no Pod runs yet"
	case holder.hasNoPods():
		alive = "has no Pods"
		if len(pods) > 0 {
			alive = "all its Pods have ended"
		}
		if !jobs.IsSuspended(job) {
			alive = "started, " + alive
		}
	case !isJob && !isPod:
		alive = "not known" // That it exists does not say that anything works.
	case holder.isOnlyOnBadNodes():
		var nodes []string
		for _, pod := range holder.Pods {
			if pod.NodeProblem != "" {
				nodes = append(nodes, p.node(pod))
			}
		}
		slices.Sort(nodes)
		return append([]string{"not known: " + strings.Join(slices.Compact(nodes), "; "), object}, pods...)
	}
	return append([]string{alive + ": " + object}, pods...)
}

// stateOf describes the object of a holder, such as "is Running, pods: 1 active, 0 succeeded, 0 failed".
func stateOf(holder *Holder) string {
	state, details := "exists", ""
	switch object := holder.Object.(type) {
	case *batchv1.Job:
		state = "is Running"
		if jobs.IsSuspended(object) {
			state = "is Suspended"
		}
		details = fmt.Sprintf(", pods: %d active, %d succeeded, %d failed", object.Status.Active, object.Status.Succeeded, object.Status.Failed)
		if ptr.Deref(object.Spec.Parallelism, 1) == 0 {
			details += ", spec.parallelism is 0"
		}
	case *corev1.Pod:
		state = "is " + string(object.Status.Phase)
	}
	if holder.Object.GetDeletionTimestamp() != nil {
		details += ", is being deleted"
	}
	if ended := holderref.HowEnded(holder.Object); ended != "" {
		state = ended
	}
	return state + details
}

// WhyNoPods returns the last failure to create a Pod for the Job that holds the lock, if that has none; otherwise empty.
func (p Printer) WhyNoPods(facts *Facts) string {
	if facts.Holder == nil || facts.Holder.FailedCreate.Time.IsZero() {
		return ""
	}
	return p.Times.Ago(facts.Holder.FailedCreate.Time) + ", " + facts.Holder.FailedCreate.What
}

// unstarted says why a Job that has the lock has not started.
func (p Printer) unstarted(facts *Facts) []string {
	const unstarted = "has the lock, has not started: "
	if len(facts.Stopping) == 0 {
		return []string{unstarted + "the operator is about to start Job " + facts.Lock.Spec.HolderRef.Name}
	}
	var names, pods []string
	for _, job := range facts.Stopping {
		names, pods = append(names, job.Name), append(pods, p.pods(job.Pods)...)
	}
	return append([]string{unstarted + "waits for the Pods of Job " + strings.Join(names, ", ")}, pods...)
}

// node says what is wrong with the node of a Pod.
func (p Printer) node(pod Pod) string {
	text := "node " + pod.Spec.NodeName + " " + pod.NodeProblem
	if !pod.NodeSince.IsZero() {
		text += ", " + p.Times.During(pod.NodeSince)
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
	text := "Pod " + pod.Name + ": "
	deleted := pod.deleted()
	switch {
	case !deleted.IsZero():
		text += "Terminating"
	case pod.Status.Phase == corev1.PodPending:
		text += "has not begun, Pending " + p.Times.During(pod.CreationTimestamp.Time)
	default:
		text += string(pod.Status.Phase)
	}
	if pod.Spec.NodeName != "" {
		text += " on node " + pod.Spec.NodeName
	}
	if pod.NodeProblem != "" {
		text += " (which " + pod.NodeProblem + ")"
	}
	if !deleted.IsZero() {
		text += " " + p.Times.During(deleted)
	}
	if started := pod.Status.StartTime; started != nil {
		text += ", started " + p.Times.Ago(started.Time)
	}
	restarts := int32(0)
	for index := range pod.Status.ContainerStatuses {
		restarts += pod.Status.ContainerStatuses[index].RestartCount
	}
	if restarts > 0 {
		text += fmt.Sprintf(", restarted %d times", restarts)
	}
	if !pod.LastLog.IsZero() {
		text += ", last log line " + p.Times.Ago(pod.LastLog)
	}
	return text
}

// waiter describes who waits in which place.
func (p *page) waiter(place int, name string, since time.Time, priority int32) string {
	text := fmt.Sprintf("%d. %s, %s", place, name, p.Times.During(since))
	if priority != 0 {
		text += fmt.Sprintf(", priority %d", priority)
	}
	return text
}

// waiting shows the Jobs that wait.
func (p *page) waiting() {
	label, others := "Waiting", "not known: no Job shows"
	for index, job := range p.Waiting {
		text := p.waiter(index+1, "Job/"+job.Name, job.Turn.WaitsSince, job.Turn.Priority)
		if job.Refusal != nil {
			text += ": " + p.refused(job.Refusal)
		}
		p.field(label, "%s", text)
		if job.Refusal != nil {
			p.message("   " + job.Refusal.Why)
		}
		label, others = "", "and perhaps more"
	}
	if p.Callers == nil {
		p.field(label, "%s. Callers through a façade show with --server,", others)
		p.field("", "those that take locks directly, as kubectl lock run does, nowhere")
	}
}

// callers shows those that wait through a façade.
func (p *page) callers() {
	var lines []string
	for index := range p.Callers {
		caller := &p.Callers[index]
		name := locks.Person(caller.Holder, caller.Namespace)
		if ref := caller.HolderRef; ref != nil {
			name = ref.Kind + "/" + ref.Name
		}
		text := p.waiter(caller.Place, name, caller.Since, caller.Priority)
		if !caller.Until.IsZero() {
			text += ", gives up " + p.Times.In(caller.Until)
		}
		if caller.Reason != "" {
			text += ": " + caller.Reason
		}
		lines = append(lines, text)
	}
	if p.Callers != nil && len(lines) == 0 {
		lines = []string{"no caller"}
	}
	p.fields("Waiting", lines)
	if p.AreMore {
		p.field("", "and more")
	}
}

// stopping shows the Jobs whose Pods keep the next one from its start.
func (p *page) stopping() {
	var lines []string
	for _, job := range p.Stopping {
		does := "its Pods have not ended"
		switch {
		case job.QueuesAgain:
			does = "stopping; it queues again when its Pods have ended"
		case job.Phase == jobs.Stopping:
			does = "deleted, and its Pods have not ended"
		}
		lines = append(lines, fmt.Sprintf("Job/%s: %s", job.Name, does))
		if !p.IsHeld(p.Times.Now) || !p.isUnstarted() { // Else they are shown as what the holder waits for.
			lines = append(lines, p.pods(job.Pods)...)
		}
	}
	p.fields("Stopping", lines)
}

// guarded names what a guard covers.
func guarded(guard v1alpha1.Guard) string {
	resource := schema.GroupResource{Group: guard.Group, Resource: guard.Resource}.String()
	if guard.Name != "" {
		return resource + " " + guard.Name
	}
	if selector := metav1.FormatLabelSelector(guard.Selector); guard.Selector != nil && selector != "" && selector != "<none>" {
		return resource + " with " + selector
	}
	return "all " + resource
}
