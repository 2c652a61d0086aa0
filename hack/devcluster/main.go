package main

import (
	"fmt"
	"os"
)

func main() {
	if err := execute(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "devcluster: %v\n", err)
		os.Exit(1)
	}
}

func execute(args []string) error {
	opts, err := parseOptions(args, os.Getenv)
	if err != nil {
		return err
	}
	switch opts.command {
	case "run":
		return run(opts, os.Stdout)
	case "up":
		return up(opts, os.Stdout)
	default:
		return down(opts, os.Stdout)
	}
}
