package describe

import (
	"cmp"
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

// page is what is being printed.
type page struct {
	*Facts
	times human.Times
	text  strings.Builder
}

// Print writes the facts, and what the user may do now.
func (f *Facts) Print(out io.Writer) error {
	p := &page{Facts: f, times: f.Session.Times()}
	p.job()
	where := ""
	if f.Namespace != "" {
		where = " in namespace " + f.Namespace
	}
	p.line("Lock %s%s", f.Key.Bare(), where)
	if f.IsHeld() {
		p.held()
	} else {
		p.free()
	}
	p.field("Waiting", p.waiting()...)
	p.field("Stopping", p.stopping()...)
	var history []string
	for _, entry := range f.history {
		history = append(history, terminal.Pad(p.times.Ago(entry.time), 9)+"  "+entry.what)
	}
	p.field("History", history...)
	p.line("")
	p.line("What you may do now:")
	p.advice()
	p.field("Not known", f.Unknown...)
	_, err := io.WriteString(out, p.text.String())
	return err
}

func (p *page) line(format string, args ...any) {
	p.text.WriteString(strings.TrimRight(terminal.Clean(fmt.Sprintf(format, args...)), " ") + "\n")
}

// field writes a field of several lines, the first one with the label; nothing if there are none.
func (p *page) field(label string, lines ...string) {
	for _, line := range lines {
		p.line("  %-12s%s", label, line)
		label = ""
	}
}

// job says what the Job does with its lock whose name was given in place of a key.
func (p *page) job() {
	job := p.Job
	if job == nil {
		return
	}
	key := job.Lock.Key.Bare()
	does := fmt.Sprintf("is %s; its lock is %s", strings.ToLower(string(job.Phase)), key)
	switch {
	case job.Holds(p.Lock) && p.IsHeld():
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
	if !p.isOfJob() {
		p.line("No lock %s; Job %s %s:", p.Key.Bare(), job.Name, does)
		p.line("    %s", p.Session.Command("who", key))
		p.line("")
		return
	}
	p.line("Job %s %s", job.Name, does)
	if job.NotRun != "" {
		p.line("  %s", job.NotRun)
	}
}

// isOfJob reports whether the lock is the lock of the Job whose name was given.
func (p *page) isOfJob() bool { return p.Job != nil && p.ID == p.Job.Lock }

// refused says when a Job was refused its lock or its start, and is tried again.
func (p *page) refused(refusal *jobs.Refusal) string {
	again := "in its turn"
	if refusal.Until.After(p.times.Now) {
		again = p.times.In(refusal.Until)
	}
	return fmt.Sprintf("refused %s, and is tried again %s", p.times.Ago(refusal.At), again)
}

func (p *page) free() {
	state := "free: no holder"
	if p.Lock != nil {
		row := locks.RowOf(p.Lock)
		state = fmt.Sprintf("free: the last holder, %s, let it expire %s", row.Holder, p.times.Ago(row.Expires))
	}
	p.field("State", state)
	if len(p.heldIn) > 0 {
		p.field("Held in", "namespace "+strings.Join(p.heldIn, ", "))
	}
	if len(p.nearby) > 0 {
		p.field("Held here", strings.Join(p.nearby, ", ")+". Did you mean that?")
	}
}

func (p *page) held() {
	row, state := locks.RowOf(p.Lock), "held"
	isConnected := rules.ConnectionOf(p.Lock) != ""
	switch {
	case isConnected && p.IsMine:
		state = "held by a connection of yours"
	case isConnected:
		state = "held by a connection"
	case p.IsMine:
		state = "held by you"
	}
	holder := row.Holder
	if row.Holder != row.Identity {
		holder += " (" + row.Identity + ")"
	}
	renewed, expires := p.times.Renewed(row.Acquired, row.Renewed), p.times.In(row.Expires)
	if row.TTL > 0 {
		renewed += "; each renewal lasts " + human.For(row.TTL)
		expires += ", unless renewed"
	}
	var guards []string
	for _, guard := range p.Lock.Spec.Guards {
		guards = append(guards, guarded(guard)+": only the holder may change them")
	}
	p.field("State", state)
	p.field("Holder", holder)
	p.field("Alive", p.Alive()...)
	p.field("Reason", cmp.Or(row.Reason, "none was given"))
	p.field("Since", p.times.Ago(row.Acquired))
	p.field("Renewed", renewed)
	p.field("Expires", expires)
	p.field("Fencing", fmt.Sprint("token ", row.FencingToken))
	p.field("Guards", guards...)
}

// guarded names what a guard covers.
func guarded(guard v1alpha1.Guard) string {
	resource := schema.GroupResource{Group: guard.Group, Resource: guard.Resource}.String()
	switch selector := metav1.FormatLabelSelector(guard.Selector); {
	case guard.Name != "":
		return resource + " " + guard.Name
	case selector != "<none>":
		return resource + " with " + selector
	}
	return "all " + resource
}

// Alive returns lines that say whether the holder of a lock is alive, and why a Job that holds it has no Pods. There are none if
// that is not known.
func (f *Facts) Alive() []string {
	ref, holder := f.Lock.Spec.HolderRef, f.Holder
	switch {
	case ref == nil && rules.ConnectionOf(f.Lock) != "":
		return []string{"as far as its connection shows; when that ends, the lock is free"}
	case ref == nil:
		return []string{"not known: the holder names no Pod or Job; if it is gone, the lock expires"}
	case holder == nil:
		return nil
	case holder.Object == nil:
		return []string{fmt.Sprintf("no: %s %s %s", ref.Kind, ref.Name, holder.gone)}
	case f.holderIs(jobs.Waiting):
		return f.unstarted()
	}
	var badNodes []string
	var isPending, hasBegun, isOnGoodNode bool
	for _, pod := range holder.Pods {
		isPending = isPending || pod.Status.Phase == corev1.PodPending
		hasBegun = hasBegun || pod.isLive() && pod.Status.Phase != corev1.PodPending
		isOnGoodNode = isOnGoodNode || pod.isLive() && pod.Spec.NodeName != "" && pod.nodeProblem == ""
		if pod.nodeProblem != "" {
			node := "node " + pod.Spec.NodeName + " " + pod.nodeProblem
			if !pod.nodeSince.IsZero() {
				node += ", " + f.Session.Times().During(pod.nodeSince)
			}
			badNodes = append(badNodes, node)
		}
	}
	var state string
	alive, pods := "yes", f.pods(holder.Pods)
	switch object := holder.Object.(type) {
	case *batchv1.Job:
		state = "is Running"
		if jobs.IsSuspended(object) {
			state = "is Suspended"
		}
		state = cmp.Or(holderref.HowEnded(object), state) +
			fmt.Sprintf(", pods: %d active, %d succeeded, %d failed", object.Status.Active, object.Status.Succeeded, object.Status.Failed)
		if ptr.Deref(object.Spec.Parallelism, 1) == 0 {
			state += ", spec.parallelism is 0"
		}
	case *corev1.Pod:
		state = cmp.Or(holderref.HowEnded(object), "is "+string(object.Status.Phase))
	default:
		alive, state = "not known", "exists" // That it exists does not say that anything works.
	}
	if holder.Object.GetDeletionTimestamp() != nil {
		state += ", is being deleted"
	}
	object := ref.Kind + " " + ref.Name + " " + state
	switch {
	case f.holderIs(jobs.Stopping):
		alive = "stopping, and keeps the lock until its Pods have ended"
	case holderref.HowEnded(holder.Object) != "":
		alive = "no"
	case isPending && !hasBegun:
		alive = "started, but no Pod runs yet"
	case holder.hasNoPods():
		alive = "has no Pods"
		if len(pods) > 0 {
			alive = "all its Pods have ended"
		}
		if !jobs.IsSuspended(holder.Object.(*batchv1.Job)) {
			alive = "started, " + alive
		}
		if failed := holder.failedCreate; !failed.time.IsZero() {
			pods = append(pods, f.Session.Times().Ago(failed.time)+", "+failed.what)
		}
	case len(badNodes) > 0 && !isOnGoodNode:
		slices.Sort(badNodes)
		return append([]string{"not known: " + strings.Join(slices.Compact(badNodes), "; "), object}, pods...)
	}
	return append([]string{alive + ": " + object}, pods...)
}

// unstarted says why a Job that has the lock has not started.
func (f *Facts) unstarted() []string {
	const unstarted = "has the lock, has not started: "
	if len(f.Stopping) == 0 {
		return []string{unstarted + "the operator is about to start Job " + f.Lock.Spec.HolderRef.Name}
	}
	var names, pods []string
	for _, job := range f.Stopping {
		names, pods = append(names, job.Name), append(pods, f.pods(job.Pods)...)
	}
	return append([]string{unstarted + "waits for the Pods of Job " + strings.Join(names, ", ")}, pods...)
}

// pods describes each Pod in a line.
func (f *Facts) pods(pods []Pod) (lines []string) {
	times := f.Session.Times()
	for _, pod := range pods {
		state, since := string(pod.Status.Phase), ""
		switch {
		case pod.DeletionTimestamp != nil: // It is the end of the grace period.
			grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
			state, since = "Terminating", " "+times.During(pod.DeletionTimestamp.Add(-grace))
		case pod.Status.Phase == corev1.PodPending:
			state = "has not begun, Pending " + times.During(pod.CreationTimestamp.Time)
		}
		text := "Pod " + pod.Name + ": " + state
		if pod.Spec.NodeName != "" {
			text += " on node " + pod.Spec.NodeName
		}
		if pod.nodeProblem != "" {
			text += " (which " + pod.nodeProblem + ")"
		}
		text += since
		if started := pod.Status.StartTime; started != nil {
			text += ", started " + times.Ago(started.Time)
		}
		restarts := int32(0)
		for index := range pod.Status.ContainerStatuses {
			restarts += pod.Status.ContainerStatuses[index].RestartCount
		}
		if restarts > 0 {
			text += fmt.Sprintf(", restarted %d times", restarts)
		}
		if !pod.lastLog.IsZero() {
			text += ", last log line " + times.Ago(pod.lastLog)
		}
		lines = append(lines, text)
	}
	return lines
}

// waiting describes the Jobs that wait, and the callers that wait through a façade.
func (p *page) waiting() (lines []string) {
	add := func(place int, name string, since time.Time, priority int32, more string) {
		line := fmt.Sprintf("%d. %s, %s", place, name, p.times.During(since))
		if priority != 0 {
			line += fmt.Sprintf(", priority %d", priority)
		}
		lines = append(lines, line+more)
	}
	others := "not known: no Job shows"
	for index, job := range p.Waiting {
		refused := ""
		if job.Refusal != nil {
			refused = ": " + p.refused(job.Refusal)
		}
		add(index+1, "Job/"+job.Name, job.Turn.WaitsSince, job.Turn.Priority, refused)
		if job.Refusal != nil {
			lines = append(lines, "   "+job.Refusal.Why)
		}
		others = "and perhaps more"
	}
	for index := range p.Callers {
		caller := &p.Callers[index]
		name, more := locks.Person(caller.Holder, caller.Namespace), ""
		if ref := caller.HolderRef; ref != nil {
			name = ref.Kind + "/" + ref.Name
		}
		if !caller.Until.IsZero() {
			more += ", gives up " + p.times.In(caller.Until)
		}
		if caller.Reason != "" {
			more += ": " + caller.Reason
		}
		add(caller.Place, name, caller.Since, caller.Priority, more)
	}
	switch {
	case p.Callers == nil:
		return append(lines, others+". Callers through a façade show with --server,", "those that take locks directly, as kubectl lock run does, nowhere")
	case p.AreMore:
		return append(lines, "and more")
	case len(lines) == 0:
		return []string{"no caller"}
	}
	return lines
}

// stopping describes the Jobs whose Pods keep the next one from its start.
func (p *page) stopping() (lines []string) {
	for _, job := range p.Stopping {
		does := "its Pods have not ended"
		switch {
		case job.QueuesAgain:
			does = "stopping; it queues again when its Pods have ended"
		case job.Phase == jobs.Stopping:
			does = "deleted, and its Pods have not ended"
		}
		lines = append(lines, fmt.Sprintf("Job/%s: %s", job.Name, does))
		if !p.IsHeld() || !p.holderIs(jobs.Waiting) { // Else they are shown as what the holder waits for.
			lines = append(lines, p.pods(job.Pods)...)
		}
	}
	return lines
}
