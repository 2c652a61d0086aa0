package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"forrst.dev/lock-operator/test/bench/measure"
	"forrst.dev/lock-operator/test/bench/report"
)

// images is the folder of the plots, from the folder of the page.
const images = "images/performance"

// describe says where and when the run is made.
func describe(settings options) (report.About, error) {
	about := report.About{
		Date: time.Now(), Revision: settings.revision, IsTrial: settings.isTrial, Effort: settings.Effort,
		Processor: "unknown", Processors: runtime.NumCPU(),
	}
	if settings.Against != "" {
		about.Against = filepath.Base(settings.Against)
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return report.About{}, err
	}
	about.Load, _, _ = strings.Cut(string(load), " ")
	processors, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return report.About{}, err
	}
	for line := range strings.Lines(string(processors)) {
		// Processors of other architectures may have no name.
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			about.Processor = strings.TrimSpace(value)
			break
		}
	}
	about.Memory, err = measure.TotalBytes()
	return about, err
}

// writePage writes the report between the markers of its suite, and the plots beside the page.
func writePage(settings options, result *report.Report, about report.About) error {
	section, plots, err := result.Section(settings.suite, images, about)
	if err != nil {
		return err
	}
	page, err := os.ReadFile(settings.page)
	if err != nil {
		return err
	}
	if page, err = report.Replace(page, settings.suite, section); err != nil {
		return err
	}
	folder := filepath.Join(filepath.Dir(settings.page), images)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	// A plot that this run does not have would show another run.
	old, err := filepath.Glob(filepath.Join(folder, settings.suite+"-*.svg"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	for name, content := range plots {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(settings.page, page, 0o644)
}
