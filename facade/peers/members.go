package peers

import (
	"cmp"
	"net"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// PortName is the name that the port of the peers has in the service.
const PortName = "peers"

// member is one replica that is ready.
type member struct {
	// name is that of its Pod.
	name string
	// address is that of its port for peers.
	address string
}

// membersOf returns the replicas that are ready and not about to end, by name.
func membersOf(slices []*discoveryv1.EndpointSlice) []member {
	var found []member
	for _, slice := range slices {
		port := portOf(slice)
		if port == 0 {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if endpoint.TargetRef == nil || endpoint.TargetRef.Kind != "Pod" || len(endpoint.Addresses) == 0 || !isReady(endpoint.Conditions) {
				continue
			}
			found = append(found, member{
				name:    endpoint.TargetRef.Name,
				address: net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(port))),
			})
		}
	}
	return byName(found)
}

// byName sorts the members and keeps one of each name: while an endpoint moves from one slice to another, it
// may be in both, and a service of two address families has two slices.
func byName(members []member) []member {
	slices.SortFunc(members, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.address, b.address))
	})
	return slices.CompactFunc(members, func(a, b member) bool { return a.name == b.name })
}

func portOf(slice *discoveryv1.EndpointSlice) int32 {
	for _, port := range slice.Ports {
		if port.Name != nil && *port.Name == PortName && port.Port != nil {
			return *port.Port
		}
	}
	return 0
}

// isReady takes unset conditions for ready, as the API says.
func isReady(conditions discoveryv1.EndpointConditions) bool {
	isTerminating := conditions.Terminating != nil && *conditions.Terminating
	return !isTerminating && (conditions.Ready == nil || *conditions.Ready)
}
