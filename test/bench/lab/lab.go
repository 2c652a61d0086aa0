// Package lab runs the clusters that benchmarks measure, and has their clients.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/test/bench/measure"
)

// Lab is a cluster with its clients, for the scenarios.
type Lab struct {
	Options Options
	Machine *measure.Machine
	Cluster *Cluster
	Echo    *EchoProcess
	// Admin may do everything; Operator is the operator's own identity, whose requests
	// skip the webhook; User is an ordinary user.
	Admin, Operator, User *rest.Config
	Requests              *measure.RequestCounter
	Usage                 *measure.UsageMeter
	Etcd                  *clientv3.Client
	// Versions are those of the control plane.
	Versions Versions
}

// Versions are the versions of programs.
type Versions struct{ Kubernetes, Etcd string }

// Open starts a cluster on the machine. The caller closes the lab.
func Open(ctx context.Context, options Options, machine *measure.Machine) (*Lab, error) {
	echo, err := startEcho()
	if err != nil {
		return nil, err
	}
	started, err := startCluster(ctx, options, routesOf(echo))
	if err != nil {
		return nil, errors.Join(err, echo.stop())
	}
	l := &Lab{Options: options, Machine: machine, Cluster: started, Echo: echo}
	if err := l.connect(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// OpenAgainst starts a second cluster, with the operator and the manifests of the other commit. The caller closes it.
func (l *Lab) OpenAgainst(ctx context.Context) (*Lab, error) {
	return Open(ctx, l.Options.ofAgainst(), l.Machine)
}

func (l *Lab) connect(ctx context.Context) error {
	var err error
	if l.Admin, err = kubeconfig(l.Cluster.kubeconfig); err != nil {
		return err
	}
	if l.Operator, err = kubeconfig(l.Cluster.OperatorKubeconfig()); err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfig(l.Admin)
	if err != nil {
		return err
	}
	if err := define(ctx, clientset.Discovery().RESTClient(), bareDefinition()); err != nil {
		return fmt.Errorf("define the bare custom resource: %w", err)
	}
	if l.User, err = ordinaryUser(ctx, clientset, l.Admin); err != nil {
		return fmt.Errorf("create an ordinary user: %w", err)
	}
	l.Requests = &measure.RequestCounter{Client: clientset.Discovery().RESTClient()}
	if l.Etcd, err = l.Cluster.etcdClient(); err != nil {
		return fmt.Errorf("connect to etcd: %w", err)
	}
	pids := map[string]int{measure.ClientProgram: os.Getpid(), measure.EchoProgram: l.Echo.command.Process.Pid}
	for _, program := range []string{measure.APIServerProgram, measure.EtcdProgram, measure.OperatorProgram} {
		if pids[program], err = l.Cluster.pid(program); err != nil {
			return err
		}
	}
	l.Usage = &measure.UsageMeter{Pids: pids}
	version, err := clientset.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	status, err := l.Etcd.Status(ctx, l.Etcd.Endpoints()[0])
	if err != nil {
		return err
	}
	l.Versions = Versions{Kubernetes: version.GitVersion, Etcd: status.Version}
	return nil
}

// Site is the cluster as a place for contenders.
func (l *Lab) Site() measure.Site { return measure.Site{Requests: l.Requests, Usage: l.Usage} }

// Compare lets contenders take turns on the cluster and returns their results by name.
func (l *Lab) Compare(ctx context.Context, c *measure.Comparison) (map[string]*measure.Result, error) {
	return c.Run(ctx, l.Machine, l.Site())
}

// Close ends the cluster.
func (l *Lab) Close() error {
	var err error
	if l.Etcd != nil {
		err = l.Etcd.Close()
	}
	return errors.Join(err, l.Cluster.stop(), l.Echo.stop())
}
