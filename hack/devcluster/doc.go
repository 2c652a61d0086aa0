// Command devcluster runs a development cluster on loopback: etcd, kube-apiserver,
// kube-controller-manager and the lock operator with its webhook and façade.
//
//	devcluster run    in the foreground, until Ctrl-C or SIGTERM
//	devcluster up     in the background; returns when the cluster is ready
//	devcluster down   ends it, wherever it was started; returns when it is gone
//
// The control plane is the real one, so what works here works on a cluster; only
// nodes are missing, so no pod ever runs. Every start begins with an empty
// cluster and new certificates. Everything the cluster writes is in one state
// folder, .dev unless --dir says otherwise; kubeconfig and logs/ are in there.
//
// envtest is not used because a cluster that people work with has needs that a
// test suite has not: it also runs kube-controller-manager, notices a component
// that dies, and leaves no process behind even when it is killed itself.
package main
