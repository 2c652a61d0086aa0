package metric

import (
	"fmt"
	"strings"
)

// Table returns the catalogue as a part of a page in Markdown.
func Table() string {
	var text strings.Builder
	for _, section := range Catalogue() {
		fmt.Fprintf(&text, "\n### %s\n\n| metric | type | labels | reported by | meaning |\n| --- | --- | --- | --- | --- |\n", section.Title)
		for _, of := range section.Metrics {
			fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s |\n", of.Name, of.Type, of.labels(), of.By, of.Help)
		}
	}
	return text.String()
}

// labels lists the labels with what is known of their values.
func (d *Definition) labels() string {
	described := make([]string, len(d.Labels))
	for index, label := range d.Labels {
		described[index] = "`" + label + "`"
		if values := d.Values[label]; values != "" {
			described[index] += ": " + values
		}
	}
	return strings.Join(described, "<br>")
}
