// Package kubelet plays the nodes of a cluster: it takes pods through their phases as
// their annotations say, and notes at every moment whose pods run. No container does.
package kubelet
