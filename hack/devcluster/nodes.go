package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podNetwork are the addresses of pods. No program listens on them, unless a test starts one.
const podNetwork = "10.244.0.0/24"

// stages are what kwok does with nodes and their pods.
//
//go:embed stages.yaml
var stages []byte

// startNodes starts the scheduler and kwok, creates the nodes and waits until pods can be
// scheduled to them.
func (c *cluster) startNodes(ctx context.Context, admin client.Client) error {
	if err := c.startBinary(schedulerName,
		"--kubeconfig="+c.dir.componentKubeconfig(schedulerName),
		"--leader-elect=false",
		"--secure-port=0",
	); err != nil {
		return err
	}
	path := filepath.Join(string(c.dir), "stages.yaml")
	if err := os.WriteFile(path, stages, 0o600); err != nil {
		return err
	}
	if err := c.supervisor.start(kwokName, c.options.kwok,
		"--kubeconfig="+c.dir.kubeconfig(),
		"--config="+path,
		"--manage-all-nodes",
		"--cidr="+podNetwork,
		"--node-ip="+loopback,
		"--node-lease-duration-seconds=40",
		"--server-address=",
	); err != nil {
		return err
	}
	for i := range c.options.nodes {
		name := fmt.Sprintf("node-%d", i+1)
		// A kubelet labels its node by itself. Pods are spread over nodes, and over zones, by these labels.
		labels := map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i+1), corev1.LabelOSStable: "linux"}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if err := admin.Create(ctx, node); err != nil {
			return fmt.Errorf("creating a node: %w", err)
		}
		if err := waitFor(ctx, "Node "+node.Name, func(ctx context.Context) error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
				return err
			}
			return schedulable(node)
		}); err != nil {
			return err
		}
	}
	return nil
}

// schedulable fails unless pods that tolerate nothing can be scheduled to the node.
func schedulable(node *corev1.Node) error {
	if len(node.Status.Allocatable) == 0 {
		return errors.New("kwok has not seen the node")
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("the node is tainted: %v", node.Spec.Taints)
	}
	return nil
}
