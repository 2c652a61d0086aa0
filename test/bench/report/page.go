package report

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"time"
)

// About says where and when a run was made.
type About struct {
	// Date is the start of the run.
	Date time.Time
	// Revision is the commit that was measured, Against the one that it was compared with, or empty.
	Revision, Against string
	// Kubernetes and Etcd are versions.
	Kubernetes, Etcd string
	// Processor is the name of the model, Processors their number, Memory the size.
	Processor  string
	Processors int
	Memory     int64
	// Load is the load average of the minute before the run.
	Load string
	// Took is how long the run took.
	Took time.Duration
	// Effort is the part of all rounds that were made.
	Effort float64
	// IsTrial says that the run was too short to judge by.
	IsTrial bool
}

// Section returns the report as Markdown, with the plots that it refers to, by file name. The name begins theirs, and
// images is the path of their folder from the page.
func (r *Report) Section(name, images string, about About) (section string, plots map[string][]byte, err error) {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n", about)
	if disturbed := r.disturbance(); disturbed != "" {
		fmt.Fprintf(&out, "\n%s\n", disturbed)
	}
	r.writeFigures(&out)
	r.writeModels(&out)
	drawings, err := r.plots()
	if err != nil {
		return "", nil, err
	}
	plots = map[string][]byte{}
	for _, drawing := range drawings {
		file := name + "-" + drawing.file + ".svg"
		plots[file] = drawing.content
		fmt.Fprintf(&out, "\n![%s](%s/%s)\n", drawing.title, images, file)
	}
	r.writeContenders(&out)
	for _, sentence := range append(r.notes, r.failures...) {
		fmt.Fprintf(&out, "\n%s\n", cell(sentence))
	}
	return out.String(), plots, nil
}

// String describes the run in a paragraph.
func (a About) String() string {
	against := ""
	if a.Against != "" {
		against = " against " + a.Against
	}
	trial := ""
	if a.IsTrial {
		trial = "A trial, too short to judge by. "
	}
	effort := ""
	if a.Effort != 1 {
		effort = fmt.Sprintf(" with an effort of %g", a.Effort)
	}
	return fmt.Sprintf("%sOne run of %.0f minutes%s on %s: commit %s%s, Kubernetes %s, etcd %s, %d processors (%s), %.0f GiB of memory, load %s at the start.",
		trial, math.Ceil(a.Took.Minutes()), effort, a.Date.UTC().Format("2006-01-02"), a.Revision, against, a.Kubernetes, a.Etcd,
		a.Processors, a.Processor, float64(a.Memory)/(1<<30), a.Load)
}

func (r *Report) writeFigures(out *strings.Builder) {
	figures := r.figures()
	if len(figures) == 0 {
		return
	}
	fmt.Fprint(out, "\n| scenario | figure | bound | measured | quartiles | verdict |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, figure := range figures {
		fmt.Fprintf(out, "| %s | %s: %s | %s | %s | %s | %s |\n", cell(figure.scenario), cell(figure.contender), cell(figure.What),
			figure.bounds("at least", "at most"), figure.got(), figure.spread(), figure.Verdict())
	}
}

func (r *Report) writeContenders(out *strings.Builder) {
	isFirst := true
	for _, row := range r.rows {
		if row.result == nil {
			continue
		}
		if isFirst {
			fmt.Fprintf(out, "\n| scenario, clients | contender | %s |\n| --- | --- |%s\n", strings.Join(headings[:], " | "), strings.Repeat(" --- |", columns))
			isFirst = false
		}
		fmt.Fprintf(out, "| %s | %s | %s |\n", cell(row.scenario), cell(row.contender), strings.Join(row.cells[:], " | "))
	}
	if !isFirst {
		fmt.Fprintf(out, "\n%s.\n", legend)
	}
}

func (r *Report) writeModels(out *strings.Builder) {
	if len(r.models) == 0 {
		return
	}
	fmt.Fprint(out, "\n| what | without locks | each lock adds |")
	for _, locks := range modelledLocks {
		fmt.Fprintf(out, " %.0f locks |", locks)
	}
	fmt.Fprintf(out, " miss at a point not used |\n| --- | --- | --- |%s --- |\n", strings.Repeat(" --- |", len(modelledLocks)))
	for _, model := range r.models {
		fmt.Fprintf(out, "| %s | %s %s | %.3g %s |", cell(model.What), number(model.Base), model.Unit, model.PerLock, model.Unit)
		for _, locks := range modelledLocks {
			fmt.Fprintf(out, " %s %s |", number(model.At(locks)), model.Unit)
		}
		fmt.Fprintf(out, " %s |\n", model.check())
	}
}

// cell returns a text that fits into a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}

// Replace returns the page with the section between its markers replaced. The markers are comments, such as
// <!-- bench speed --> and <!-- /bench speed -->.
func Replace(page []byte, name, section string) ([]byte, error) {
	begin, end := fmt.Appendf(nil, "<!-- bench %s -->\n", name), fmt.Appendf(nil, "<!-- /bench %s -->\n", name)
	before, rest, ok := bytes.Cut(page, begin)
	if !ok {
		return nil, fmt.Errorf("the page lacks %s", bytes.TrimSpace(begin))
	}
	_, after, ok := bytes.Cut(rest, end)
	if !ok {
		return nil, fmt.Errorf("the page lacks %s", bytes.TrimSpace(end))
	}
	return bytes.Join([][]byte{before, begin, []byte("\n" + strings.TrimSpace(section) + "\n\n"), end, after}, nil), nil
}
