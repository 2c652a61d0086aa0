package peers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// sliceOf is a slice of a Service with one port, and the addresses of pods by their names.
func sliceOf(port string, number int32, pods ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Name: &port, Port: &number}}}
	for index, pod := range pods {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{"10.0.0." + string(rune('1'+index))}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: pod},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
	}
	return slice
}

func TestMembersOf(t *testing.T) {
	change := func(slice *discoveryv1.EndpointSlice, by func(*discoveryv1.Endpoint)) *discoveryv1.EndpointSlice {
		by(&slice.Endpoints[0])
		return slice
	}
	only := []member{{"a", "10.0.0.1:8445"}}
	for name, test := range map[string]struct {
		slices []*discoveryv1.EndpointSlice
		want   []member
	}{
		"none":                 {},
		"those of all slices":  {[]*discoveryv1.EndpointSlice{sliceOf(PortName, 8445, "b"), sliceOf(PortName, 9445, "a")}, []member{{"a", "10.0.0.1:9445"}, {"b", "10.0.0.1:8445"}}},
		"each once":            {[]*discoveryv1.EndpointSlice{sliceOf(PortName, 8445, "a"), sliceOf(PortName, 8445, "a")}, only},
		"none of another port": {[]*discoveryv1.EndpointSlice{sliceOf("facade", 8443, "old"), sliceOf(PortName, 8445, "a")}, only},
		"none without a port":  {[]*discoveryv1.EndpointSlice{{Endpoints: sliceOf(PortName, 8445, "a").Endpoints}}, nil},
		"one of unknown state": {[]*discoveryv1.EndpointSlice{change(sliceOf(PortName, 8445, "a"), func(e *discoveryv1.Endpoint) { e.Conditions.Ready = nil })}, only},
		"none that is unready": {[]*discoveryv1.EndpointSlice{change(sliceOf(PortName, 8445, "a"), func(e *discoveryv1.Endpoint) { e.Conditions.Ready = new(false) })}, nil},
		"none that ends":       {[]*discoveryv1.EndpointSlice{change(sliceOf(PortName, 8445, "a"), func(e *discoveryv1.Endpoint) { e.Conditions.Terminating = new(true) })}, nil},
		"none that is no Pod":  {[]*discoveryv1.EndpointSlice{change(sliceOf(PortName, 8445, "a"), func(e *discoveryv1.Endpoint) { e.TargetRef.Kind = "Node" })}, nil},
		"none without a name":  {[]*discoveryv1.EndpointSlice{change(sliceOf(PortName, 8445, "a"), func(e *discoveryv1.Endpoint) { e.TargetRef = nil })}, nil},
		"none without address": {[]*discoveryv1.EndpointSlice{change(sliceOf(PortName, 8445, "a"), func(e *discoveryv1.Endpoint) { e.Addresses = nil })}, nil},
		"by an IPv6 address":   {[]*discoveryv1.EndpointSlice{change(sliceOf(PortName, 8445, "a"), func(e *discoveryv1.Endpoint) { e.Addresses = []string{"fd00::1"} })}, []member{{"a", "[fd00::1]:8445"}}},
		"one address of each":  {[]*discoveryv1.EndpointSlice{change(sliceOf(PortName, 8445, "a"), func(e *discoveryv1.Endpoint) { e.Addresses = []string{"fd00::1"} }), sliceOf(PortName, 8445, "a")}, only},
	} {
		t.Run(name, func(t *testing.T) {
			if difference := cmp.Diff(test.want, membersOf(test.slices), cmp.AllowUnexported(member{})); difference != "" {
				t.Error(difference)
			}
		})
	}
}
