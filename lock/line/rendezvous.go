package line

import (
	"github.com/cespare/xxhash/v2"
	"k8s.io/apimachinery/pkg/types"
)

// HomeOf returns the member that is home to the line of a lock: the one whose name and that of the lock have
// the highest hash. All replicas with the same members choose the same, and a member that comes or goes moves
// only the lines of its own. It returns "" if there are no members.
func HomeOf(of types.NamespacedName, members []string) string {
	home, highest := "", uint64(0)
	for _, member := range members {
		weight := xxhash.Sum64String(member + "\x00" + of.Namespace + "\x00" + of.Name)
		if home == "" || weight > highest || weight == highest && member < home {
			home, highest = member, weight
		}
	}
	return home
}
