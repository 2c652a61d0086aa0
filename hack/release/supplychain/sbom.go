package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes the bill of materials of a program. It has no time and no serial number: the same
// program has the same bill.
func writeSBOM(path string, of program) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	encoder := cyclonedx.NewBOMEncoder(file, cyclonedx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.Encode(billOf(of)); err != nil {
		_ = file.Close() // The first error counts.
		return fmt.Errorf("write %s: %w", path, err)
	}
	return file.Close()
}

func billOf(of program) *cyclonedx.BOM {
	bill := cyclonedx.NewBOM()
	bill.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: "program", Type: cyclonedx.ComponentTypeApplication, Name: of.path, Version: of.version,
	}}
	components := make([]cyclonedx.Component, 0, len(of.modules))
	needed := make([]string, 0, len(of.modules))
	for _, each := range of.modules {
		components = append(components, componentOf(each))
		needed = append(needed, each.name())
	}
	bill.Components = &components
	bill.Dependencies = &[]cyclonedx.Dependency{{Ref: "program", Dependencies: &needed}}
	return bill
}

func componentOf(of module) cyclonedx.Component {
	var licenses cyclonedx.Licenses
	for _, name := range of.licenses {
		licenses = append(licenses, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: name}})
	}
	component := cyclonedx.Component{
		BOMRef: of.name(), Type: cyclonedx.ComponentTypeLibrary, Name: of.path, Version: of.version,
		PackageURL: "pkg:golang/" + of.name(), Licenses: &licenses,
	}
	if of.sha512 != "" {
		component.PackageURL = "pkg:npm/" + strings.ReplaceAll(of.path, "@", "%40") + "@" + of.version
		component.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA512, Value: of.sha512}}
	}
	if of.sha256 != "" {
		component.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: of.sha256}}
	}
	return component
}
