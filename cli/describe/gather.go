// Package describe gathers what is known of one lock, and prints it on one screen.
package describe

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/jobs"
)

const (
	// maxEntries is how many entries the history has.
	maxEntries = 10
	// maxPods is how many Pods of a Job are looked at.
	maxPods = 10
	// logTimeout is how long a Pod's log may take: a node that is gone must not keep the rest back.
	logTimeout = 2 * time.Second
	// logBytes is more than the time takes with which a line begins.
	logBytes = 64
	// defaultContainerAnnotation names the container whose log kubectl shows, if that is not the first one.
	defaultContainerAnnotation = "kubectl.kubernetes.io/default-container"
)

// What is wrong with a node that cannot end its Pods.
const (
	nodeGone   = "does not exist"
	nodeSilent = "does not report"
)

// Facts are what is known of a lock at one time.
type Facts struct {
	// Session says where the lock is, and tells the time.
	Session *session.Session
	locks.ID
	// Lock is nil if there is none. An expired one is free.
	Lock *v1alpha1.Lock
	// IsMine says that the user is known to be the holder, and HasProof that release finds the owner token of this grant.
	IsMine, HasProof bool
	// Job is the Job whose name was given in place of a key, as "nightly" or "job/nightly". With
	// "job/", the facts are of its lock, and else of the key, which is free.
	Job *locks.Job
	// Holder is nil if the lock names no object, or if that could not be read.
	Holder *Holder
	// Waiting are the Jobs that wait, the next one first.
	Waiting []locks.Job
	// Callers are the callers that wait through a façade, the next one first; nil if they are not known. AreMore says
	// that others wait, after these or between them.
	Callers []lock.Waiter
	AreMore bool
	// Stopping are the Jobs whose Pods keep the next Job of the lock from its start.
	Stopping []StoppingJob
	// Unknown says what could not be found out, and why.
	Unknown []string

	// heldIn are other namespaces in which the key of a free lock is held, and nearby similar keys that are held in its own.
	heldIn, nearby []string
	// history has the latest entries last.
	history []entry
	// mayCreate and mayForce say whether the user may take the lock, and end that of another holder; nil if that is not known.
	mayCreate, mayForce *bool

	// cluster is asked for facts by several goroutines: each sets facts of its own, and mu guards Unknown.
	cluster client.Client
	mu      sync.Mutex
	// logs is nil if logs are not asked for.
	logs corev1client.PodsGetter
}

// Holder is the object that a lock is held for.
type Holder struct {
	// Object is nil if it does not exist: then gone says so, after its name.
	Object client.Object
	gone   string
	// Job is that object if it is a Job that runs under a lock; otherwise nil.
	Job *locks.Job
	// Pods are the Pods of a Job, or the Pod itself.
	Pods []Pod
	// failedCreate is the last failure of the Job controller to create a Pod of a Job that has none; zero if there is none.
	failedCreate entry
}

// Pod is a Pod, with what is known of its node.
type Pod struct {
	*corev1.Pod
	// nodeProblem says what is wrong with the node, such as "is not ready"; empty if nothing is known to be. It may be known since when.
	nodeProblem string
	nodeSince   time.Time
	// lastLog is when the Pod last wrote a line; zero if that is not known.
	lastLog time.Time
}

// StoppingJob is a Job that does not hold the lock, with its Pods that have not ended.
type StoppingJob struct {
	locks.Job
	Pods []Pod
}

// entry is a part of the history: what happened, to whom or by whom, in one line.
type entry struct {
	time time.Time
	what string
}

func (e entry) compare(other entry) int {
	return cmp.Or(e.time.Compare(other.time), strings.Compare(e.what, other.what))
}

// IsHeld reports whether the lock has a holder.
func (f *Facts) IsHeld() bool { return locks.IsHeld(f.Lock, f.Session.Now()) }

// HolderHasNoPods reports whether the holder is a Job that goes on without a Pod that has not ended.
func (f *Facts) HolderHasNoPods() bool { return f.Holder != nil && f.Holder.hasNoPods() }

func (h *Holder) hasNoPods() bool {
	job, isJob := h.Object.(*batchv1.Job)
	return isJob && holderref.HowEnded(job) == "" && jobs.HasNoPods(job) && !slices.ContainsFunc(h.Pods, Pod.isLive)
}

// holderIs reports whether the holder is a Job under a lock in that phase. One that waits has the lock, and no Pods yet.
func (f *Facts) holderIs(phase jobs.Phase) bool {
	return f.Holder != nil && f.Holder.Job != nil && f.Holder.Job.Phase == phase
}

// isLive reports whether the Pod has not ended.
func (p Pod) isLive() bool {
	return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// GatherHolder returns what is known of the holder of a lock alone: its object, which Jobs wait
// for the lock, and whose Pods keep them from their start.
func GatherHolder(ctx context.Context, s *session.Session, cluster client.Client, held *v1alpha1.Lock) *Facts {
	f := &Facts{Session: s, ID: locks.IDOf(held), Lock: held, cluster: cluster}
	f.ask(ctx, map[string]func(context.Context) error{"the holder's object": f.readHolder, "the Jobs that wait or stop": f.readJobs})
	return f
}

// Gather returns what the API server knows of a lock. Job is the one that was named in place of the key; nil if none was. Records
// has records of the audit, one a line, among other lines. Only a failure to read the lock itself is an error: what else cannot be
// found out is in Unknown.
func Gather(ctx context.Context, s *session.Session, key v1alpha1.FullKey, job *locks.Job, records io.Reader) (*Facts, error) {
	cluster, err := s.Cluster()
	if err != nil {
		return nil, err
	}
	f := &Facts{Session: s, ID: locks.ID{Namespace: s.Namespace(), Key: key}, Lock: &v1alpha1.Lock{}, Job: job, cluster: cluster}
	if config, err := s.RESTConfig(); err == nil {
		if logs, err := corev1client.NewForConfig(config); err == nil {
			f.logs = logs
		}
	}
	if err := cluster.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: key.ObjectName()}, f.Lock); err != nil {
		if !apierrors.IsNotFound(err) {
			return nil, err
		}
		f.Lock = nil
	}
	if job == nil && !f.IsHeld() {
		f.Job, err = locks.FindJob(ctx, cluster, f.Namespace, key.Bare())
		f.unknown("whether a Job has this name", err)
	}
	questions := map[string]func(context.Context) error{
		"the holder's object": f.readHolder, "the Jobs that wait or stop": f.readJobs, "what you may do": f.readRights,
		"the events": func(ctx context.Context) (err error) {
			f.history, err = f.readEvents(ctx, fields.Set{"involvedObject.kind": "Lock", "involvedObject.name": key.ObjectName()})
			return err
		},
	}
	if f.Job == nil && !f.IsHeld() { // The namespace may have been left out.
		questions["the other namespaces"] = func(ctx context.Context) (err error) {
			f.heldIn, err = locks.HeldElsewhere(ctx, cluster, f.ID, s.Now())
			return err
		}
	}
	if f.Job == nil && f.Lock == nil { // Not even an expired one: the key may have been mistyped.
		questions["locks of similar keys"] = func(ctx context.Context) (err error) {
			f.nearby, err = locks.HeldNearby(ctx, cluster, f.ID, s.Now())
			return err
		}
	}
	f.ask(ctx, questions)
	f.unknown("the records of audits", f.readAudit(records))
	slices.SortFunc(f.history, entry.compare)
	f.history = f.history[max(0, len(f.history)-maxEntries):]
	slices.Sort(f.Unknown)
	f.Unknown = slices.Compact(f.Unknown) // Several Pods may be on one node.
	return f, nil
}

// ask asks all questions at the same time: a person waits for the answers.
func (f *Facts) ask(ctx context.Context, questions map[string]func(context.Context) error) {
	var asking sync.WaitGroup
	for what, question := range questions {
		asking.Go(func() { f.unknown(what, question(ctx)) })
	}
	asking.Wait()
}

// unknown records what could not be found out, if there is an error.
func (f *Facts) unknown(what string, err error) {
	if err == nil {
		return
	}
	why := err.Error()
	if apierrors.IsForbidden(err) {
		why = "you may not read that"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Unknown = append(f.Unknown, what+": "+why)
}

func (f *Facts) readRights(ctx context.Context) error {
	create, err := locks.MissingVerbs(ctx, f.cluster, f.Namespace, "", "create")
	if err != nil {
		return err
	}
	// A forced release marks the lock and then deletes it.
	force, err := locks.MissingVerbs(ctx, f.cluster, f.Namespace, f.Key.ObjectName(), "force-release", "update", "delete")
	if err == nil {
		f.mayCreate, f.mayForce = new(len(create) == 0), new(len(force) == 0)
	}
	return err
}

// readHolder reads the object that the lock is held for, and its Pods.
func (f *Facts) readHolder(ctx context.Context) error {
	if f.Lock == nil || f.Lock.Spec.HolderRef == nil {
		return nil
	}
	ref, found := f.Lock.Spec.HolderRef, &Holder{}
	object := holderref.ObjectOf(ref)
	err := f.cluster.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: ref.Name}, object)
	switch {
	case apierrors.IsNotFound(err):
		found.gone = "is gone"
	case err != nil:
		return err
	case object.GetUID() != ref.UID:
		found.gone = "is gone; another " + ref.Kind + " has its name now"
	default:
		found.Object = object
	}
	switch object := found.Object.(type) {
	case *corev1.Pod:
		found.Pods = []Pod{f.readPod(ctx, object)}
	case *batchv1.Job:
		found.Job, found.Pods = locks.JobOf(object), f.readPods(ctx, object.UID)
		if !jobs.IsSuspended(object) && found.hasNoPods() {
			failures, err := f.readEvents(ctx, fields.Set{"involvedObject.uid": string(object.UID), "reason": "FailedCreate"})
			f.unknown("the events of the Job", err)
			if len(failures) > 0 {
				found.failedCreate = failures[len(failures)-1]
			}
		}
	}
	f.Holder = found
	return nil
}

// readPods returns Pods of a Job.
func (f *Facts) readPods(ctx context.Context, job types.UID) []Pod {
	var pods corev1.PodList
	err := f.cluster.List(ctx, &pods, client.InNamespace(f.Namespace), client.Limit(maxPods), client.MatchingLabels{batchv1.ControllerUidLabel: string(job)})
	f.unknown("the Pods of the Job", err)
	// At the same time, since each may be on a node that does not answer.
	seen := make([]Pod, len(pods.Items))
	var reading sync.WaitGroup
	for index := range pods.Items {
		reading.Go(func() { seen[index] = f.readPod(ctx, &pods.Items[index]) })
	}
	reading.Wait()
	return seen
}

// readPod finds out whether the node of a Pod works: if not, the status of the Pod is only the last one that the node has reported.
func (f *Facts) readPod(ctx context.Context, pod *corev1.Pod) Pod {
	seen := Pod{Pod: pod}
	if pod.Spec.NodeName != "" && seen.isLive() {
		node := new(corev1.Node)
		err := f.cluster.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node)
		switch {
		case err == nil:
			seen.nodeProblem, seen.nodeSince = problemOf(node)
		case apierrors.IsNotFound(err):
			seen.nodeProblem = nodeGone
		default:
			f.unknown("whether the nodes of the Pods are ready", err)
		}
	}
	if f.logs != nil {
		seen.lastLog = lastLog(ctx, f.logs, pod)
	}
	return seen
}

// problemOf says why Pods of a node may not work; empty if it is ready.
func problemOf(node *corev1.Node) (problem string, since time.Time) {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			problems := map[corev1.ConditionStatus]string{corev1.ConditionFalse: "is not ready", corev1.ConditionUnknown: nodeSilent}
			return problems[condition.Status], condition.LastTransitionTime.Time
		}
	}
	return "has not reported that it is ready", node.CreationTimestamp.Time
}

// lastLog returns the time of the last line of the container of a Pod whose log kubectl shows. It is zero for a Pod that has not
// begun, or whose node is gone.
func lastLog(ctx context.Context, logs corev1client.PodsGetter, pod *corev1.Pod) time.Time {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	name := pod.Annotations[defaultContainerAnnotation]
	if !slices.ContainsFunc(pod.Spec.Containers, func(container corev1.Container) bool { return container.Name == name }) {
		name = pod.Spec.Containers[0].Name
	}
	line, _ := logs.Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: name, TailLines: new(int64(1)), Timestamps: true, LimitBytes: new(int64(logBytes)),
	}).DoRaw(ctx)
	begin, _, _ := strings.Cut(string(line), " ")
	at, _ := time.Parse(time.RFC3339Nano, strings.TrimSpace(begin))
	return at
}

// readJobs looks for the Jobs that wait for the lock, and for those without it whose Pods have not ended.
func (f *Facts) readJobs(ctx context.Context) error {
	all, err := locks.Jobs(ctx, f.cluster, f.Namespace)
	if err != nil {
		return err
	}
	var holder types.UID
	waiting := locks.Waiting(all)
	if f.Waiting = waiting[f.ID]; f.IsHeld() {
		row := locks.RowOf(f.Lock)
		f.Waiting, holder = row.Waiting(waiting), row.HolderUID
	}
	for _, job := range all {
		if job.Lock == f.ID && job.UID != holder && job.MayHavePods {
			pods := slices.DeleteFunc(f.readPods(ctx, job.UID), func(pod Pod) bool { return !pod.isLive() })
			f.Stopping = append(f.Stopping, StoppingJob{job, pods})
		}
	}
	slices.SortFunc(f.Stopping, func(a, b StoppingJob) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// readEvents returns the events with these fields, the latest last.
func (f *Facts) readEvents(ctx context.Context, with fields.Set) (found []entry, err error) {
	var events corev1.EventList
	err = f.cluster.List(ctx, &events, client.InNamespace(f.Namespace), client.Limit(locks.PageSize), client.MatchingFieldsSelector{Selector: with.AsSelector()})
	for index := range events.Items {
		event := &events.Items[index]
		at := cmp.Or(event.LastTimestamp.Time, event.EventTime.Time, event.CreationTimestamp.Time)
		if event.Series != nil {
			at = event.Series.LastObservedTime.Time
		}
		found = append(found, entry{at, event.Reason + ": " + event.Message})
	}
	slices.SortFunc(found, entry.compare)
	return found, err
}

// readAudit reads the records of the lock among the lines of a log. Renewals are left out, since there are too many, and
// dry runs.
func (f *Facts) readAudit(records io.Reader) (err error) {
	for lines := bufio.NewReader(records); err == nil; {
		var line []byte
		line, err = lines.ReadBytes('\n')
		var record audit.Record
		if json.Unmarshal(line[max(0, bytes.IndexByte(line, '{')):], &record) == nil && record.Schema == audit.Schema && record.Namespace == f.Namespace &&
			record.Lock == f.Key.ObjectName() && record.Event != audit.Renewed && !record.DryRun {
			f.history = append(f.history, entry{record.Time.Time, textOf(&record)})
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func textOf(record *audit.Record) string {
	what := string(record.Event)
	add := func(before, text, after string) {
		if text != "" {
			what += before + text + after
		}
	}
	add(" (", string(record.Reason), ")")
	if record.Admitted {
		what += ", admitted"
	}
	add(", holder ", locks.Person(record.Holder, record.Namespace), "")
	if record.Actor != record.Holder {
		add(", by ", locks.Person(record.Actor, record.Namespace), "")
	}
	add(": ", record.Message, "")
	return what
}
