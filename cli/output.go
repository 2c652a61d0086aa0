package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/util/jsonpath"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/terminal"
)

// customColumns begins the format that kubectl has besides those of cli-runtime.
const customColumns = "custom-columns"

// output is the flag -o of commands that print locks.
type output struct {
	flags   *genericclioptions.PrintFlags
	printer printers.ResourcePrinter
}

func (o *output) addFlags(command *cobra.Command) {
	o.flags = genericclioptions.NewPrintFlags("").WithTypeSetter(session.Scheme)
	o.flags.AddFlags(command)
	flag := command.Flags().Lookup("output")
	flag.Usage = "Output format. One of: (" + strings.Join(o.formats(), ", ") + ")."
	_ = command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.formats(), cobra.ShellCompDirectiveNoFileComp))
}

func (o *output) formats() []string {
	return append([]string{"wide", customColumns}, o.flags.AllowedFormats()...)
}

// complete reports a format that does not exist.
func (o *output) complete() (err error) {
	if o.isTable() {
		return nil
	}
	if rest, ok := strings.CutPrefix(*o.flags.OutputFormat, customColumns); ok {
		o.printer, err = newColumnPrinter(strings.TrimPrefix(rest, "="))
		return err
	}
	o.printer, err = o.flags.ToPrinter()
	if err != nil {
		what := err.Error()
		if genericclioptions.IsNoCompatiblePrinterError(err) {
			what = "there is no such format"
		}
		return failure.New(failure.Usage, fmt.Sprintf("-o %s: %s", *o.flags.OutputFormat, what), "use one of "+strings.Join(o.formats(), ", "))
	}
	return nil
}

func (o *output) isWide() bool { return *o.flags.OutputFormat == "wide" }

func (o *output) isTable() bool {
	template := o.flags.TemplatePrinterFlags.TemplateArgument
	return o.isWide() || *o.flags.OutputFormat == "" && (template == nil || *template == "")
}

func (o *output) printList(out io.Writer, items []v1alpha1.Lock) error {
	for index := range items {
		publish(&items[index])
		if *o.flags.OutputFormat != "name" {
			continue
		}
		if err := o.printer.PrintObj(&items[index], out); err != nil {
			return err
		}
	}
	if *o.flags.OutputFormat == "name" {
		return nil
	}
	list := &v1alpha1.LockList{Items: items}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("LockList"))
	return o.printer.PrintObj(list, out)
}

func (o *output) printOne(out io.Writer, lock *v1alpha1.Lock) error {
	shown := *lock
	publish(&shown)
	return o.printer.PrintObj(&shown, out)
}

// publish sets the type, which the API's clients leave out, and removes the owner token:
// what is printed ends up in tickets and chats, and the token is what proves a holder.
func publish(lock *v1alpha1.Lock) {
	lock.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Lock"))
	lock.Spec.Owner = ""
	if token, err := lock.FencingToken(); err == nil && lock.Spec.FencingToken == nil {
		lock.Spec.FencingToken = &token // Until the first write after the grant, the object has it as its resourceVersion.
	}
}

// columnPrinter prints "HEADER:.path,…" as kubectl does.
type columnPrinter struct {
	table terminal.Table
	paths []*jsonpath.JSONPath
}

func newColumnPrinter(spec string) (*columnPrinter, error) {
	const do = "write them as in -o custom-columns=KEY:.spec.key,UNTIL:.spec.expireTime"
	p := new(columnPrinter)
	for column := range strings.SplitSeq(spec, ",") {
		header, path, ok := strings.Cut(column, ":")
		if !ok || header == "" || path == "" {
			return nil, failure.New(failure.Usage, fmt.Sprintf("-o custom-columns: %q is no HEADER:.path", column), do)
		}
		if !strings.HasPrefix(path, "{") {
			path = "{." + strings.TrimPrefix(path, ".") + "}"
		}
		parsed := jsonpath.New(header).AllowMissingKeys(true)
		if err := parsed.Parse(path); err != nil {
			return nil, failure.New(failure.Usage, fmt.Sprintf("-o custom-columns: the path of %s: %v", header, err), do)
		}
		p.table.Columns = append(p.table.Columns, terminal.Column{Header: header})
		p.paths = append(p.paths, parsed)
	}
	return p, nil
}

// PrintObj implements [printers.ResourcePrinter].
func (p *columnPrinter) PrintObj(object runtime.Object, out io.Writer) error {
	objects := []any{object}
	if list, ok := object.(*v1alpha1.LockList); ok {
		objects = objects[:0]
		for index := range list.Items {
			objects = append(objects, &list.Items[index])
		}
	}
	rows := make([][]string, 0, len(objects))
	for _, each := range objects {
		row, err := p.row(each)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return p.table.Write(out, rows)
}

func (p *columnPrinter) row(object any) ([]string, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	// Numbers as they are written: as floating point, a fencing token would lose digits.
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var fields any
	if err := decoder.Decode(&fields); err != nil {
		return nil, err
	}
	row := make([]string, 0, len(p.paths))
	for _, path := range p.paths {
		found, err := path.FindResults(fields)
		if err != nil {
			return nil, err
		}
		var values []string
		for _, result := range slices.Concat(found...) {
			values = append(values, fmt.Sprint(result.Interface()))
		}
		if len(values) == 0 {
			values = []string{"<none>"}
		}
		row = append(row, strings.Join(values, ","))
	}
	return row, nil
}
