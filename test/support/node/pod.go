package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/test/support/container"
)

const (
	// probePeriod is shorter than that of the specs, which the test would wait for.
	probePeriod = 500 * time.Millisecond
	// restartDelay keeps a container that ends at once from using up the machine.
	restartDelay = time.Second
)

// pod is one pod on the node.
type pod struct {
	node     *Node
	object   *corev1.Pod
	services []service
	folder   string
	address  string
	tokens   map[string][]byte
	started  time.Time
	restarts int32

	ending chan struct{}
	once   sync.Once
}

func newPod(n *Node, object *corev1.Pod, services []service) *pod {
	return &pod{node: n, object: object, services: services, folder: filepath.Join(n.folder, string(object.UID)),
		tokens: map[string][]byte{}, ending: make(chan struct{})}
}

// end ends the pod as its deletion does.
func (p *pod) end() { p.once.Do(func() { close(p.ending) }) }

// run runs the pod until it has ended, and reports that.
func (p *pod) run(ctx context.Context) error {
	if len(p.object.Spec.Containers) != 1 || len(p.object.Spec.InitContainers) > 0 {
		return errors.New("this node runs pods of one container")
	}
	if err := os.MkdirAll(p.folder, 0o700); err != nil {
		return err
	}
	namespace, address, err := p.node.network.join(ctx)
	if err != nil {
		return err
	}
	p.address = address
	defer func() { _ = p.node.network.leave(context.WithoutCancel(ctx), namespace) }()
	if err := p.awaitVolumes(ctx); err != nil {
		return err
	}
	for {
		again, err := p.runOnce(ctx, namespace)
		if !again || err != nil {
			return err
		}
		p.restarts++
		select {
		case <-ctx.Done():
			return nil
		case <-p.ending:
			return p.node.remove(ctx, p.object)
		case <-time.After(restartDelay):
		}
	}
}

// awaitVolumes returns when all that the pod mounts is there, or when it is to end.
func (p *pod) awaitVolumes(ctx context.Context) error {
	for {
		err := p.writeVolumes(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-p.ending:
			return errors.Join(err, p.node.remove(ctx, p.object))
		case <-time.After(probePeriod):
		}
	}
}

// runOnce runs the container and reports whether to do so again.
func (p *pod) runOnce(ctx context.Context, namespace string) (again bool, err error) {
	options, err := p.options(namespace)
	if err != nil {
		return false, err
	}
	log, err := os.OpenFile(filepath.Join(p.node.options.Logs, p.object.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	defer func() { _ = log.Close() }()
	options.Log = log
	running, err := p.node.options.Store.Start(options)
	if err != nil {
		return false, err
	}
	p.started = time.Now()
	ended := p.watch(ctx, running)
	grace := time.Duration(*p.object.Spec.TerminationGracePeriodSeconds) * time.Second
	switch ended {
	case byTheTest:
		return false, running.Stop(context.WithoutCancel(ctx), 0)
	case byDeletion:
		stopErr := running.Stop(ctx, grace)
		return false, errors.Join(stopErr, p.node.remove(ctx, p.object))
	default:
		status := exitStatus(running.Stop(ctx, grace))
		if p.object.Spec.RestartPolicy == corev1.RestartPolicyAlways {
			return true, p.report(ctx, corev1.PodRunning, false, &status)
		}
		phase := corev1.PodSucceeded
		if status != 0 {
			phase = corev1.PodFailed
		}
		return false, p.report(ctx, phase, false, &status)
	}
}

// ends are the ways in which a container ends.
type ends int

const (
	byItself ends = iota
	byDeletion
	byTheTest
)

// watch reports whether the container is ready, and renews what it mounts, until it ends or is to end.
func (p *pod) watch(ctx context.Context, running *container.Container) ends {
	ticker := time.NewTicker(probePeriod)
	defer ticker.Stop()
	reported := ""
	for {
		isReady := p.probe(ctx)
		if now := strconv.FormatBool(isReady); now != reported {
			if err := p.report(ctx, corev1.PodRunning, isReady, nil); err == nil {
				reported = now
			}
		}
		// What is missing for a moment stays as it was.
		_ = p.writeVolumes(ctx)
		select {
		case <-running.Exited():
			return byItself
		case <-p.ending:
			return byDeletion
		case <-ctx.Done():
			return byTheTest
		case <-ticker.C:
		}
	}
}

// probe reports whether the readiness probe succeeds.
func (p *pod) probe(ctx context.Context) bool {
	spec := p.object.Spec.Containers[0]
	if spec.ReadinessProbe == nil {
		return true
	}
	port := spec.ReadinessProbe.HTTPGet.Port.IntVal
	for _, each := range spec.Ports {
		if each.Name == spec.ReadinessProbe.HTTPGet.Port.StrVal {
			port = each.ContainerPort
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // The default, a second, would be a verdict on the machine.
	defer cancel()
	url := "http://" + net.JoinHostPort(p.address, strconv.Itoa(int(port))) + spec.ReadinessProbe.HTTPGet.Path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode < http.StatusBadRequest
}

// options are what the spec of the pod says.
func (p *pod) options(namespace string) (container.Options, error) {
	spec := p.object.Spec.Containers[0]
	security := spec.SecurityContext
	if security == nil || security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem || spec.Resources.Limits.Memory().IsZero() {
		return container.Options{}, errors.New("this node runs containers with a memory limit that write nothing")
	}
	options := container.Options{
		Name: p.object.Name, Image: spec.Image, Network: "ns:/run/netns/" + namespace,
		Memory: spec.Resources.Limits.Memory().Value(), Hosts: hosts(p.services), Mounts: map[string]string{},
		Environment: map[string]string{"KUBERNETES_SERVICE_HOST": "kubernetes.default.svc", "KUBERNETES_SERVICE_PORT": "443"},
	}
	expansions := []string{}
	for _, variable := range spec.Env {
		value := variable.Value
		if variable.ValueFrom != nil {
			var err error
			if value, err = p.field(variable.ValueFrom.FieldRef); err != nil {
				return options, err
			}
		}
		options.Environment[variable.Name] = value
		expansions = append(expansions, "$("+variable.Name+")", value)
	}
	for _, argument := range append(spec.Command, spec.Args...) {
		options.Arguments = append(options.Arguments, strings.NewReplacer(expansions...).Replace(argument))
	}
	for _, mount := range spec.VolumeMounts {
		if !mount.ReadOnly || mount.SubPath != "" {
			return options, fmt.Errorf("this node mounts whole volumes to be read: %v", mount)
		}
		options.Mounts[mount.MountPath] = filepath.Join(p.folder, mount.Name)
	}
	return options, nil
}

// field returns the field of the pod that a reference names.
func (p *pod) field(reference *corev1.ObjectFieldSelector) (string, error) {
	if reference == nil {
		return "", errors.New("this node knows references to fields of the pod only")
	}
	switch reference.FieldPath {
	case "metadata.namespace":
		return p.object.Namespace, nil
	case "metadata.name":
		return p.object.Name, nil
	case "metadata.uid":
		return string(p.object.UID), nil
	case "spec.nodeName":
		return p.object.Spec.NodeName, nil
	case "status.podIP":
		return p.address, nil
	default:
		return "", fmt.Errorf("this node knows no field %s", reference.FieldPath)
	}
}

// report writes the status of the pod. It has ended if there is an exit status.
func (p *pod) report(ctx context.Context, phase corev1.PodPhase, isReady bool, exit *int32) error {
	now, since := metav1.Now(), metav1.NewTime(p.started)
	spec := p.object.Spec.Containers[0]
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}}
	if exit != nil {
		state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: *exit, StartedAt: since, FinishedAt: now}}
	}
	ready := corev1.ConditionFalse
	if isReady {
		ready = corev1.ConditionTrue
	}
	status := corev1.PodStatus{
		Phase: phase, PodIP: p.address, PodIPs: []corev1.PodIP{{IP: p.address}}, StartTime: &since,
		ContainerStatuses: []corev1.ContainerStatus{{Name: spec.Name, Image: spec.Image, Ready: isReady, Started: new(exit == nil), RestartCount: p.restarts, State: state}},
	}
	for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		value := ready
		if condition == corev1.PodInitialized {
			value = corev1.ConditionTrue
		}
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: condition, Status: value, LastTransitionTime: now})
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.object.UID}, "status": status})
	if err != nil {
		return err
	}
	_, err = p.node.options.Client.CoreV1().Pods(p.object.Namespace).Patch(ctx, p.object.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func exitStatus(err error) int32 {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return int32(exit.ExitCode())
	}
	if err != nil {
		return 1
	}
	return 0
}
