// Package image looks at the images that "make image" built, and runs one of them as a pod would.
package image
