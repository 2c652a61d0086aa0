// Command devcluster runs a development cluster on loopback: etcd, kube-apiserver,
// kube-controller-manager and the lock operator with its webhook and façade.
//
//	devcluster run    in the foreground, until Ctrl-C or SIGTERM
//	devcluster up     in the background; returns when the cluster is ready
//	devcluster down   ends it, wherever it was started; returns when it is gone
//
// The control plane is the real one, so what works here works on a cluster; only
// nodes are missing, so no pod ever runs. Every start begins with an empty
// cluster and new credentials. Everything the cluster writes is in one state
// folder, .dev unless --dir says otherwise; kubeconfig and logs/ are in there.
//
// The processes are its own and not those of envtest, which starts an API server and
// etcd for a test: it notices no component that dies, leaves them behind when it is
// killed, and says of none how it ended. What this takes from client-go are the
// certificate and the keys; etcd has none, because it listens on sockets in the state folder.
package main
