//go:build unix

package tokenfile

import (
	"fmt"
	"os"
	"syscall"
)

// checkPrivate returns an error unless all folders belong to the user, and no other user has access:
// another one could have made them first.
func checkPrivate(folders []string) error {
	for _, folder := range folders {
		info, err := os.Lstat(folder)
		if err != nil {
			return err
		}
		owner, isKnown := info.Sys().(*syscall.Stat_t)
		switch {
		case !info.IsDir():
			return fmt.Errorf("%s is no folder, so no owner token is kept in it", folder)
		case isKnown && int(owner.Uid) != os.Geteuid():
			return fmt.Errorf("%s belongs to another user, so no owner token is kept in it", folder)
		case info.Mode().Perm()&0o077 != 0:
			return fmt.Errorf("other users have access to %s, so no owner token is kept in it: chmod 700 %s", folder, folder)
		}
	}
	return nil
}
