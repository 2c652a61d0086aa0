package main

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// namespace is the namespace of the façade and of every lock of the benchmarks.
const namespace = "default"

// lab is a cluster with its clients, for the scenarios.
type lab struct {
	options options
	cluster *cluster
	echo    *echoProcess
	// admin may do everything; operator is the operator's own identity, whose requests
	// skip the webhook; user is an ordinary user.
	admin, operator, user *rest.Config
	requests              *requestCounter
	usage                 *usageMeter
	etcd                  *clientv3.Client
}

// openLab starts a cluster. The caller closes the lab.
func openLab(ctx context.Context, settings options) (*lab, error) {
	echo, err := startEcho()
	if err != nil {
		return nil, err
	}
	started, err := startCluster(ctx, settings, routesOf(echo))
	if err != nil {
		return nil, errors.Join(err, echo.stop())
	}
	l := &lab{options: settings, cluster: started, echo: echo}
	if err := l.connect(ctx); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *lab) connect(ctx context.Context) error {
	var err error
	if l.admin, err = kubeconfig(l.cluster.kubeconfig); err != nil {
		return err
	}
	if l.operator, err = kubeconfig(l.cluster.operatorKubeconfig()); err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfig(l.admin)
	if err != nil {
		return err
	}
	if l.user, err = ordinaryUser(ctx, clientset, l.admin); err != nil {
		return fmt.Errorf("create an ordinary user: %w", err)
	}
	l.requests = &requestCounter{client: clientset.Discovery().RESTClient()}
	if l.etcd, err = l.cluster.etcdClient(); err != nil {
		return fmt.Errorf("connect to etcd: %w", err)
	}
	l.usage, err = newUsageMeter(l.cluster, l.echo)
	return err
}

func (l *lab) close() error {
	var err error
	if l.etcd != nil {
		err = l.etcd.Close()
	}
	return errors.Join(err, l.cluster.stop(), l.echo.stop())
}
