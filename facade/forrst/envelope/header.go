package envelope

import "strings"

// FitsHeader reports whether an id may be repeated in a header: at most 1 KiB, since
// clients limit all headers together to 8 KiB, of printable ASCII only, so that no id
// starts another header or means something else to its reader, and no space at either
// end, which a reader would drop.
func FitsHeader(id string) bool {
	if strings.TrimSpace(id) != id {
		return false
	}
	for i := range len(id) {
		if id[i] < ' ' || id[i] > '~' {
			return false
		}
	}
	return len(id) <= 1<<10
}
