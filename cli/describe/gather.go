package describe

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/jobs"
)

const (
	// maxEntries is how many entries the history has.
	maxEntries = 10
	// maxRecordBytes is more than a record of the audit may have.
	maxRecordBytes = 64 << 10
	// maxPods is how many Pods of a Job are looked at.
	maxPods = 10
	// logTimeout is how long a Pod's log may take: a node that is gone must not keep the rest back.
	logTimeout = 2 * time.Second
	// logBytes is more than the time takes with which a line begins.
	logBytes = 64
	// defaultContainerAnnotation names the container whose log kubectl shows, if that is not the first one.
	defaultContainerAnnotation = "kubectl.kubernetes.io/default-container"
)

// Gatherer asks the API server what is known of a lock.
type Gatherer struct {
	Cluster client.Client
	// Logs reads logs. It is used by several goroutines. Nil means that logs are not asked for.
	Logs corev1client.PodsGetter
	// Audit has records of the audit, one a line, among other lines. May be nil.
	Audit io.Reader
	// Now returns the time of the service.
	Now func() time.Time
}

// gathering is what several goroutines gather: each sets facts of its own, and mu guards History and Unknown.
type gathering struct {
	*Gatherer
	Facts
	mu sync.Mutex
}

// GatherHolder returns what is known of the holder of a lock alone: its object, which Jobs wait
// for the lock, and whose Pods keep them from their start.
func (g *Gatherer) GatherHolder(ctx context.Context, held *v1alpha1.Lock) *Facts {
	found := &gathering{Gatherer: g, Facts: Facts{ID: locks.IDOf(held), Lock: held}}
	found.ask(ctx, map[string]func(context.Context) error{"the holder's object": found.holder, "the Jobs": found.jobs})
	return &found.Facts
}

// Gather returns the facts. Only a failure to read the lock itself is an error: what
// else cannot be found out is in Unknown.
func (g *Gatherer) Gather(ctx context.Context, namespace string, key v1alpha1.FullKey) (*Facts, error) {
	found := &gathering{Gatherer: g, Facts: Facts{ID: locks.ID{Namespace: namespace, Key: key}}}
	if err := found.read(ctx); err != nil {
		return nil, err
	}
	if !found.IsHeld(g.Now()) {
		if err := found.findJob(ctx); err != nil {
			return nil, err
		}
	}
	found.ask(ctx, map[string]func(context.Context) error{
		"who you are":           found.me,
		"the holder's object":   found.holder,
		"the Jobs":              found.jobs,
		"the other namespaces":  found.elsewhere,
		"locks of similar keys": found.nearby,
		"the events":            found.events,
		"what you may do":       found.rights,
		"the records of audits": found.audit,
	})
	slices.SortFunc(found.History, func(a, b Entry) int { return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.What, b.What)) })
	found.History = found.History[max(0, len(found.History)-maxEntries):]
	slices.Sort(found.Unknown)
	found.Unknown = slices.Compact(found.Unknown) // Several Pods may be on one node.
	return &found.Facts, nil
}

// ask asks all questions at the same time: a person waits for the answers.
func (g *gathering) ask(ctx context.Context, questions map[string]func(context.Context) error) {
	var asking sync.WaitGroup
	for what, question := range questions {
		asking.Go(func() { g.unknown(what, question(ctx)) })
	}
	asking.Wait()
}

// unknown records what could not be found out, if there is an error.
func (g *gathering) unknown(what string, err error) {
	if err == nil {
		return
	}
	text := what + ": " + err.Error()
	switch isOne := what == "the holder's object" || strings.HasPrefix(what, "wh"); {
	case apierrors.IsForbidden(err) && isOne:
		text = what + ": you may not read that"
	case apierrors.IsForbidden(err):
		text = what + ": you may not read them"
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Unknown = append(g.Unknown, text)
}

// read reads the lock.
func (g *gathering) read(ctx context.Context) error {
	g.Lock = new(v1alpha1.Lock)
	err := g.Cluster.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: g.Key.ObjectName()}, g.Lock)
	if err != nil {
		g.Lock = nil
	}
	return client.IgnoreNotFound(err)
}

// findJob looks for a Job under a lock that has the key as its name.
func (g *gathering) findJob(ctx context.Context) (err error) {
	name := g.Key.Bare()
	kind, of, isObject := locks.ObjectName(name)
	isJob := isObject && kind == "Job"
	if isJob {
		name = of
	}
	if g.Job, err = locks.FindJob(ctx, g.Cluster, g.Namespace, name); err != nil {
		g.unknown("whether a Job has this name", err)
		return nil
	}
	if g.Job == nil || !isJob {
		return nil
	}
	g.ID = g.Job.Lock
	return g.read(ctx)
}

func (g *gathering) me(ctx context.Context) error {
	review := new(authenticationv1.SelfSubjectReview)
	err := g.Cluster.Create(ctx, review)
	g.Me = review.Status.UserInfo.Username
	return err
}

func (g *gathering) rights(ctx context.Context) error {
	allowed := map[string]bool{}
	// A forced release marks the lock and then deletes it, which needs the last three.
	for _, verb := range []string{"create", "force-release", "update", "delete"} {
		attributes := &authorizationv1.ResourceAttributes{Namespace: g.Namespace, Verb: verb, Group: v1alpha1.GroupVersion.Group, Resource: "locks"}
		if verb != "create" {
			attributes.Name = g.Key.ObjectName()
		}
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
		if err := g.Cluster.Create(ctx, review); err != nil {
			return err
		}
		allowed[verb] = review.Status.Allowed
	}
	g.Rights = &Rights{Create: allowed["create"], Force: allowed["force-release"] && allowed["update"] && allowed["delete"]}
	return nil
}

// holder reads the object that the lock is held for, and its Pods.
func (g *gathering) holder(ctx context.Context) error {
	if g.Lock == nil || g.Lock.Spec.HolderRef == nil {
		return nil
	}
	ref, object := g.Lock.Spec.HolderRef, holderref.ObjectOf(g.Lock.Spec.HolderRef)
	err := g.Cluster.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: ref.Name}, object)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	found := &Holder{IsReplaced: err == nil && object.GetUID() != ref.UID}
	if err == nil && !found.IsReplaced {
		found.Object = object
		switch object := object.(type) {
		case *corev1.Pod:
			found.Pods = []Pod{g.pod(ctx, object)}
		case *batchv1.Job:
			found.Job, found.Pods = locks.JobOf(object), g.podsOf(ctx, object.UID)
			if !jobs.IsSuspended(object) && found.hasNoPods() {
				found.FailedCreate = g.failedCreate(ctx, object)
			}
		}
	}
	g.Holder = found
	return nil
}

// podsOf returns Pods of a Job.
func (g *gathering) podsOf(ctx context.Context, job types.UID) []Pod {
	var pods corev1.PodList
	err := g.Cluster.List(ctx, &pods, client.InNamespace(g.Namespace), client.Limit(maxPods), client.MatchingLabels{batchv1.ControllerUidLabel: string(job)})
	g.unknown("the Pods of the Job", err)
	// At the same time, since each may be on a node that does not answer.
	seen := make([]Pod, len(pods.Items))
	var reading sync.WaitGroup
	for index := range pods.Items {
		reading.Go(func() { seen[index] = g.pod(ctx, &pods.Items[index]) })
	}
	reading.Wait()
	return seen
}

// pod finds out whether the node of a Pod works: if not, the status of the Pod is only the last one that the node has reported.
func (g *gathering) pod(ctx context.Context, pod *corev1.Pod) Pod {
	seen := Pod{Pod: pod}
	if pod.Spec.NodeName != "" && seen.isLive() {
		node := new(corev1.Node)
		err := g.Cluster.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node)
		switch {
		case err == nil:
			seen.NodeProblem, seen.NodeSince = problemOf(node)
		case apierrors.IsNotFound(err):
			seen.NodeProblem = nodeGone
		case apierrors.IsForbidden(err):
			g.unknown("whether the nodes of the Pods are ready", err)
		default:
			g.unknown("whether node "+pod.Spec.NodeName+" is ready", err)
		}
	}
	if g.Logs != nil {
		// A Pod that has not begun has no log, and one whose node is gone shows none.
		seen.LastLog, _ = lastLog(ctx, g.Logs, pod)
	}
	return seen
}

// lastLog returns the time of the last line of the container of a Pod whose log kubectl shows.
func lastLog(ctx context.Context, logs corev1client.PodsGetter, pod *corev1.Pod) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, logTimeout)
	defer cancel()
	container := pod.Spec.Containers[0].Name
	for index := range pod.Spec.Containers {
		if name := pod.Spec.Containers[index].Name; name == pod.Annotations[defaultContainerAnnotation] {
			container = name
		}
	}
	line, err := logs.Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, TailLines: new(int64(1)), Timestamps: true, LimitBytes: new(int64(logBytes)),
	}).DoRaw(ctx)
	if err != nil {
		return time.Time{}, err
	}
	begin, _, _ := strings.Cut(string(line), " ")
	return time.Parse(time.RFC3339Nano, strings.TrimSpace(begin))
}

// failedCreate returns the last event of a Job that says why a Pod of it could not be created, or zero.
func (g *gathering) failedCreate(ctx context.Context, job *batchv1.Job) (last Entry) {
	events, err := g.eventsOf(ctx, "Job", job.Name)
	g.unknown("the events of the Job", err)
	for index := range events {
		event := &events[index]
		if entry := entryOf(event); event.InvolvedObject.UID == job.UID && event.Reason == "FailedCreate" && !entry.Time.Before(last.Time) {
			last = entry
		}
	}
	return last
}

// jobs looks for the Jobs that wait for the lock, and for those without it whose Pods have not ended.
func (g *gathering) jobs(ctx context.Context) error {
	all, err := locks.Jobs(ctx, g.Cluster, g.Namespace)
	if err != nil {
		g.unknown("the Jobs that wait", err)
		g.unknown("the Jobs that stop", err)
		return nil
	}
	var holder types.UID
	waiting := locks.Waiting(all)
	if g.Waiting = waiting[g.ID]; g.IsHeld(g.Now()) {
		row := locks.RowOf(g.Lock)
		g.Waiting, holder = row.Waiting(waiting), row.HolderUID
	}
	for _, job := range all {
		if job.Lock == g.ID && job.UID != holder && job.MayHavePods {
			pods := slices.DeleteFunc(g.podsOf(ctx, job.UID), func(pod Pod) bool { return !pod.isLive() })
			g.Stopping = append(g.Stopping, StoppingJob{job, pods})
		}
	}
	slices.SortFunc(g.Stopping, func(a, b StoppingJob) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// elsewhere looks for the key in other namespaces if it is free in this one: it may have been left out.
func (g *gathering) elsewhere(ctx context.Context) (err error) {
	if g.Job == nil && !g.IsHeld(g.Now()) {
		g.HeldIn, err = locks.HeldElsewhere(ctx, g.Cluster, g.ID, g.Now())
	}
	return err
}

// nearby looks for similar keys if no lock has the key, not even an expired one: it may have been mistyped.
func (g *gathering) nearby(ctx context.Context) (err error) {
	if g.Job == nil && g.Lock == nil {
		g.Nearby, err = locks.HeldNearby(ctx, g.Cluster, g.ID, g.Now())
	}
	return err
}

func (g *gathering) events(ctx context.Context) error {
	events, err := g.eventsOf(ctx, "Lock", g.Key.ObjectName())
	for index := range events {
		g.add(entryOf(&events[index]))
	}
	return err
}

// eventsOf returns the events of an object of that name.
func (g *gathering) eventsOf(ctx context.Context, kind, name string) ([]corev1.Event, error) {
	var events corev1.EventList
	err := g.Cluster.List(ctx, &events, client.InNamespace(g.Namespace), client.Limit(locks.PageSize), client.MatchingFieldsSelector{Selector: fields.AndSelectors(
		fields.OneTermEqualSelector("involvedObject.kind", kind), fields.OneTermEqualSelector("involvedObject.name", name))})
	return events.Items, err
}

func entryOf(event *corev1.Event) Entry {
	at := cmp.Or(event.LastTimestamp.Time, event.EventTime.Time, event.CreationTimestamp.Time)
	if event.Series != nil {
		at = event.Series.LastObservedTime.Time
	}
	return Entry{Time: at, What: event.Reason + ": " + event.Message}
}

func (g *gathering) add(entry Entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.History = append(g.History, entry)
}

// audit reads the records of the lock among the lines of a log. Renewals are left out, since there are too many, and
// dry runs.
func (g *gathering) audit(context.Context) error {
	if g.Audit == nil {
		return nil
	}
	lines := bufio.NewReaderSize(g.Audit, maxRecordBytes)
	for {
		line, isCut, err := lines.ReadLine()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		begin := strings.IndexByte(string(line), '{')
		if isCut || begin < 0 {
			continue
		}
		var record audit.Record
		if json.Unmarshal(line[begin:], &record) == nil && record.Schema == audit.Schema && record.Namespace == g.Namespace &&
			record.Lock == g.Key.ObjectName() && record.Event != audit.Renewed && !record.DryRun {
			g.add(Entry{Time: record.Time.Time, What: textOf(&record)})
		}
	}
}

func textOf(record *audit.Record) string {
	what := string(record.Event)
	if record.Reason != "" {
		what += " (" + string(record.Reason) + ")"
	}
	if record.Admitted {
		what += ", admitted"
	}
	if record.Holder != "" {
		what += ", holder " + locks.Person(record.Holder, record.Namespace)
	}
	if record.Actor != "" && record.Actor != record.Holder {
		what += ", by " + locks.Person(record.Actor, record.Namespace)
	}
	if record.Message != "" {
		what += ": " + record.Message
	}
	return what
}
