package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/locks"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/terminal"
	"forrst.dev/lock-operator/lock"
)

// target is the lock that an argument names.
type target struct {
	key v1alpha1.FullKey
	// job is the Job of job/NAME or of pod/NAME; nil if the argument is a KEY, or the Pod is no Job's.
	job *locks.Job
}

// targetOf returns the lock that an argument names: by its KEY, or as job/NAME or pod/NAME by an object.
// A full key, as events print it, names the lock of its KEY. The KEY of an existing lock comes first: it may look like
// one of these.
func targetOf(ctx context.Context, s *session.Session, argument string) (target, error) {
	literal := target{key: v1alpha1.FullKeyOf(argument)}
	bare, isFull := strings.CutPrefix(argument, fullKeyPrefix)
	isFull = isFull && bare != ""
	kind, name, isObject := locks.ObjectName(argument)
	if !isFull && (s.UsesFacade() || !isObject) {
		return literal, nil
	}
	exists, err := lockExists(ctx, s, literal.key)
	switch {
	case err != nil || exists:
		return literal, err
	case isFull:
		return target{key: v1alpha1.FullKeyOf(bare)}, nil
	case len(validation.IsDNS1123Subdomain(name)) > 0:
		return literal, failure.Usagef("%q is no name of a %s", name, kind)
	}
	cluster, err := s.Cluster()
	switch {
	case err != nil:
		return literal, err
	case kind == "Pod":
		return targetOfPod(ctx, s, cluster, client.ObjectKey{Namespace: s.Namespace(), Name: name})
	}
	return targetOfJob(ctx, s, cluster, client.ObjectKey{Namespace: s.Namespace(), Name: name})
}

// fullKeyPrefix begins full keys, such as lock:billing:report, as events and refusals print them.
const fullKeyPrefix = "lock:"

// lockExists reports whether there is a lock of the key, be it expired.
func lockExists(ctx context.Context, s *session.Session, key v1alpha1.FullKey) (bool, error) {
	if s.UsesFacade() {
		backend, err := s.Backend(ctx)
		if err != nil {
			return false, err
		}
		_, err = backend.Get(ctx, s.Namespace(), key)
		if errors.Is(err, lock.ErrNotHeld) {
			return false, nil
		}
		return err == nil, err
	}
	cluster, err := s.Cluster()
	if err != nil {
		return false, err
	}
	err = cluster.Get(ctx, client.ObjectKey{Namespace: s.Namespace(), Name: key.ObjectName()}, &v1alpha1.Lock{})
	return err == nil, client.IgnoreNotFound(err)
}

// whereElse says of a key that is not held where it is, and which similar ones are: the namespace may have been
// left out, or the key mistyped.
func whereElse(ctx context.Context, s *session.Session, cluster client.Client, named locks.ID) (hints []string) {
	if namespaces, _ := locks.HeldElsewhere(ctx, cluster, named, s.Now()); len(namespaces) > 0 {
		hints = append(hints, "it is held in namespace "+strings.Join(namespaces, ", "))
	}
	if keys, _ := locks.HeldNearby(ctx, cluster, named, s.Now()); len(keys) > 0 {
		hints = append(hints, "did you mean "+terminal.Visible(strings.Join(keys, ", or "))+"?")
	}
	return hints
}

func targetOfJob(ctx context.Context, s *session.Session, cluster client.WithWatch, name client.ObjectKey) (target, error) {
	job := &batchv1.Job{}
	if err := getNamed(ctx, s, cluster, name, "Job", job); err != nil {
		return target{}, err
	}
	locked, err := locks.FindJob(ctx, cluster, name.Namespace, name.Name)
	switch {
	case err != nil:
		return target{}, err
	case locked == nil:
		return target{}, failure.New(failure.Usage, fmt.Sprintf("Job %s runs under no lock: it lacks the label %s=true", name.Name, v1alpha1.LockLabel),
			"see the locks that are held: "+s.Command("list"))
	}
	return target{key: locked.Lock.Key, job: locked}, nil
}

// targetOfPod returns the lock of the Job that the Pod is part of, or the one that is held for the Pod.
func targetOfPod(ctx context.Context, s *session.Session, cluster client.WithWatch, name client.ObjectKey) (target, error) {
	pod := &corev1.Pod{}
	if err := getNamed(ctx, s, cluster, name, "Pod", pod); err != nil {
		return target{}, err
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Job" {
		if job, err := locks.FindJob(ctx, cluster, name.Namespace, owner.Name); err == nil && job != nil && job.UID == owner.UID {
			return target{key: job.Lock.Key, job: job}, nil
		}
	}
	var keys []string
	source := &locks.Source{Cluster: cluster, Namespace: name.Namespace}
	all, _, err := source.List(ctx)
	if err != nil {
		return target{}, err
	}
	for _, each := range all {
		if row := locks.RowOf(each); pod.UID != "" && row.HolderUID == pod.UID && row.IsHeld(s.Now()) {
			keys = append(keys, row.Key.Bare())
		}
	}
	slices.Sort(keys)
	switch len(keys) {
	case 0:
		return target{}, failure.New(failure.NotHeld, fmt.Sprintf("no lock is held for Pod %s", name.Name), "see the locks that are held: "+s.Command("list"))
	case 1:
		return target{key: v1alpha1.FullKeyOf(keys[0])}, nil
	}
	return target{}, failure.New(failure.Usage, fmt.Sprintf("Pod %s holds several locks: %s", name.Name, terminal.Visible(strings.Join(keys, ", "))), "name one of them by its KEY")
}

// getNamed reads an object that the user has named.
func getNamed(ctx context.Context, s *session.Session, cluster client.Client, name client.ObjectKey, kind string, object client.Object) error {
	err := cluster.Get(ctx, name, object)
	if !apierrors.IsNotFound(err) {
		return err
	}
	if err := checkNamespace(ctx, s, cluster, name.Namespace); err != nil {
		return err
	}
	return failure.New(failure.Usage, fmt.Sprintf("there is no %s %s in namespace %s", kind, name.Name, name.Namespace),
		"see the locks that are held: "+s.Command("list"))
}

// checkKey refuses the name of an object as the KEY of a new lock: job/nightly is that Job's lock for other
// commands. There is no such check for users who may not read the object, nor through a façade.
func checkKey(ctx context.Context, s *session.Session, key string) error {
	if bare, isFull := strings.CutPrefix(key, fullKeyPrefix); isFull {
		fmt.Fprintf(s.ErrOut, "note: %s is taken as a KEY; it is another lock than %s\n", session.Quote(key), session.Quote(bare))
	}
	kind, name, isObject := locks.ObjectName(key)
	if s.UsesFacade() || !isObject {
		return nil
	}
	cluster, err := s.Cluster()
	if err != nil {
		return err
	}
	object := client.Object(&batchv1.Job{})
	if kind == "Pod" {
		object = &corev1.Pod{}
	}
	err = cluster.Get(ctx, client.ObjectKey{Namespace: s.Namespace(), Name: name}, object)
	switch {
	case err == nil:
		return failure.New(failure.Usage, fmt.Sprintf("%s names a %s, and is not taken as the KEY of a lock", key, kind),
			"see its lock: "+s.Command("who", key), "give a KEY without that prefix")
	case apierrors.IsNotFound(err):
		fmt.Fprintf(s.ErrOut, "note: %s is taken as a KEY; there is no %s %s\n", session.Quote(key), kind, session.Quote(name))
	}
	return nil
}

// checkNamespace reports a namespace that does not exist. It is asked for where nothing was found in one. A user
// who may not read namespaces is not told.
func checkNamespace(ctx context.Context, s *session.Session, cluster client.Client, namespace string) error {
	if namespace == "" {
		return nil
	}
	if err := cluster.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); apierrors.IsNotFound(err) {
		return failure.New(failure.Usage, fmt.Sprintf("namespace %s does not exist", namespace), "see the namespaces: "+s.Kubectl("get", "namespaces"))
	}
	return nil
}
