//go:build !unix

package tokenfile

import (
	"fmt"
	"os"
)

// checkPrivate returns an error if a folder is none. Who has access follows from the folder of the user
// that they are in.
func checkPrivate(folders []string) error {
	for _, folder := range folders {
		info, err := os.Lstat(folder)
		switch {
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is no folder, so no owner token is kept in it", folder)
		}
	}
	return nil
}
