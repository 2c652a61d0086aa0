// Supplychain tells what a binary is made of.
//
//	supplychain [-module DIR] [-page DIR] [-sbom FILE] BINARY
//
// It finds the modules that are linked into the binary, looks up their licences in the module cache, and
// fails unless each module has licences and all of them are allowed. With -page it does the same for the packages of
// npm in a page that the binary serves. With -sbom it writes a bill of
// materials in the format of CycloneDX. It needs no network once the modules are downloaded.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	module := flag.String("module", ".", "the folder of the module whose go.mod pins the versions")
	page := flag.String("page", "", "the folder with the package-lock.json of a page in the binary; empty for none")
	sbom := flag.String("sbom", "", "a file for the bill of materials, as JSON; empty for none")
	flag.Parse()
	if err := run(context.Background(), *module, *page, *sbom, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "supplychain: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, module, page, sbom string, arguments []string) error {
	if len(arguments) != 1 {
		return errors.New("name one binary")
	}
	linked, err := linkedModules(ctx, module, arguments[0])
	if err != nil {
		return err
	}
	classifier, err := newClassifier()
	if err != nil {
		return err
	}
	var refused []error
	for i := range linked.modules {
		each := &linked.modules[i]
		if each.licenses, err = classifier.licensesIn(each.folder); err != nil {
			return err
		}
		refused = append(refused, checkLicenses(each.name(), each.licenses))
	}
	if page != "" {
		bundled, err := packagesOfPage(page)
		if err != nil {
			return err
		}
		for _, each := range bundled {
			refused = append(refused, checkLicenses(each.name(), each.licenses))
		}
		linked.modules = append(linked.modules, bundled...)
	}
	if err := errors.Join(refused...); err != nil {
		return err
	}
	fmt.Printf("%d modules, all under allowed licences\n", len(linked.modules))
	if sbom == "" {
		return nil
	}
	return writeSBOM(sbom, linked)
}
