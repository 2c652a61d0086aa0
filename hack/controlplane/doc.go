// Command controlplane builds the Kubernetes control plane that the development
// cluster and the tests run on: etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler and kubectl. It needs nothing but Go and the modules that go.mod pins.
//
// It is a module of its own because k8s.io/kubernetes has to be built with the
// staging modules of its own release, and because programs that import the operator's
// module must not need the modules of a whole control plane.
// To change a version, change go.mod here (k8s.io/kubernetes and, with it, every
// replaced staging module; etcd's server and, with it, etcdctl and etcdutl, which tests
// run); the next "make control-plane" builds the new one.
//
// With -kubernetes it builds another version, from a module that it derives from the
// go.mod of that release.
package main
