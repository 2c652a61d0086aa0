// Command devcluster runs a development cluster on loopback: etcd, kube-apiserver,
// kube-controller-manager and the lock operator with its webhook and façade.
//
//	devcluster run    in the foreground, until Ctrl-C or SIGTERM
//	devcluster up     in the background; returns when the cluster is ready
//	devcluster down   ends it, however it was started; returns when it has ended
//
// The control plane is the real one; only nodes are missing, so no pod ever runs. Simulated
// nodes make pods look as if they ran: the scheduler is the real one, too, and kwok writes what
// kubelets would report. Every start begins with an empty cluster and new credentials. The cluster writes only to its
// state folder, by default .dev, which contains kubeconfig and logs/.
//
// The command does not use envtest, which starts an API server and etcd for a test. envtest
// does not notice when a component dies, leaves the components behind when it is killed, and
// does not report how they ended. The certificate and the keys come from client-go; etcd has
// none, because it listens on sockets in the state folder.
package main
