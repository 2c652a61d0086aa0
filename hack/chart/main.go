// Command chart renders what installs the operator from config/: the files that the Helm chart takes
// its objects from, and the bundles for kubectl.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", "../..", "the folder of the repository")
	bundles := flag.String("bundles", "", "the folder to write the bundles to, in place of the files of the chart")
	image := flag.String("image", "", "the image of the bundles, as in registry.example.com/lock-operator:v1.0.0; that of config/ if unset")
	flag.Parse()

	if err := run(filepath.Join(*root, "config"), filepath.Join(*root, "charts", "lock-operator"), *bundles, *image); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(config, chart, bundles, image string) error {
	if bundles != "" {
		return writeBundles(config, bundles, image)
	}
	return writeChartFiles(config, filepath.Join(chart, "files", "manifests"))
}
