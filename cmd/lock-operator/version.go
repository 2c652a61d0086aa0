package main

import "runtime/debug"

// linkedVersion is set by the linker if the build has no repository, as in an image:
// -ldflags="-X main.linkedVersion=v0.1.0".
var linkedVersion string

// version is linkedVersion or that of the main module, which go build derives from the
// tags of the repository. It is empty if neither is known.
func version() string {
	info, _ := debug.ReadBuildInfo()
	return versionOf(linkedVersion, info)
}

// versionOf returns the version for these values; info may be nil.
func versionOf(linked string, info *debug.BuildInfo) string {
	if linked != "" || info == nil || info.Main.Version == "(devel)" {
		return linked
	}
	return info.Main.Version
}
