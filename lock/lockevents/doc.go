// Package lockevents makes Kubernetes Events about locks, for users who look at one with kubectl describe.
package lockevents
