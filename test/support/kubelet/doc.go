// Package kubelet simulates the nodes of a cluster. It takes pods through the phases that
// their annotations ask for, and notes which Jobs have running pods. It starts no containers.
// It also serves logs of containers, as a test writes them.
package kubelet
