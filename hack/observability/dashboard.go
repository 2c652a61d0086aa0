package main

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// A row is a titled group of panels.
type row struct {
	title  string
	panels []panel
}

// A panel shows one or more queries.
type panel struct {
	title string
	// text explains the panel in the words of an operator.
	text string
	kind kind
	unit string
	// width is in columns, of which a dashboard has 24; 0 for a third.
	width   int
	queries []query
	// stacked adds the series up.
	stacked bool
	// warn and alarm are values from which a stat is yellow and red; 0 for never.
	warn, alarm float64
}

type kind string

const (
	graph kind = "timeseries"
	stat  kind = "stat"
	table kind = "table"
)

// Units, by Grafana's names.
const (
	seconds   = "s"
	perSecond = "ops"
	count     = "short"
	share     = "percentunit"
	size      = "bytes"
)

// A query is PromQL with the variables of the dashboard, and the name of its series.
type query struct{ expr, legend string }

const (
	columns    = 24
	statWidth  = 4
	graphWidth = 8
	statHeight = 4
	// graphHeight is also that of tables.
	graphHeight = 8
	// oldestGrafana is the schema of Grafana 10. Later ones migrate it.
	oldestGrafana = 38
)

type object = map[string]any

var source = object{"type": "prometheus", "uid": "${datasource}"}

// dashboard returns the dashboard as Grafana imports it.
func dashboard() ([]byte, error) {
	var panels []object
	x, y, height := 0, 0, 0
	feed := func() { x, y, height = 0, y+height, 0 }
	for _, r := range rows {
		feed()
		panels = append(panels, object{
			"id": len(panels) + 1, "type": "row", "title": r.title, "collapsed": false, "panels": []object{},
			"gridPos": object{"x": 0, "y": y, "w": columns, "h": 1},
		})
		y++
		for _, p := range r.panels {
			w, h := p.size()
			if x+w > columns {
				feed()
			}
			rendered := p.render()
			rendered["id"], rendered["gridPos"] = len(panels)+1, object{"x": x, "y": y, "w": w, "h": h}
			panels = append(panels, rendered)
			x, height = x+w, max(height, h)
		}
	}
	board := object{
		"uid": "lock-operator", "title": "lock-operator", "tags": []string{"lock-operator"}, "schemaVersion": oldestGrafana,
		"editable": true, "graphTooltip": 1, "refresh": "30s", "timezone": "", "time": object{"from": "now-1h", "to": "now"},
		"description": "Locks and the operator that grants them. Derived from hack/observability by make generate.",
		"links":       []object{}, "annotations": object{"list": []object{firing}}, "templating": object{"list": variables}, "panels": panels,
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(board)
	return out.Bytes(), err
}

// firing marks the times at which alerts began to fire.
var firing = object{
	"name": "Alerts", "enable": true, "iconColor": "red", "datasource": source,
	"expr": `ALERTS{alertname=~"LockOperator.*",alertstate="firing"}`, "titleFormat": "{{alertname}}",
}

var variables = []object{
	{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
	{
		"name": "namespace", "type": "query", "label": "Namespace of the locks", "datasource": source, "refresh": 2, "sort": 1,
		"includeAll": true, "multi": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"},
		"query": object{"query": "label_values(lock_operator_locks, namespace)", "refId": "namespace"},
	},
}

func (p *panel) size() (w, h int) {
	w, h = graphWidth, graphHeight
	if p.kind == stat {
		w, h = statWidth, statHeight
	}
	if p.width > 0 {
		w = p.width
	}
	return w, h
}

func (p *panel) render() object {
	defaults, options := object{"unit": p.unit, "noValue": "no data"}, object{}
	rendered := object{
		"type": p.kind, "title": p.title, "description": p.text, "datasource": source,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}}, "options": options,
	}
	switch p.kind {
	case graph:
		custom := object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "axisSoftMin": 0}
		if p.stacked {
			custom["stacking"] = object{"mode": "normal"}
		}
		defaults["custom"] = custom
		options["legend"] = object{"displayMode": "list", "placement": "bottom", "showLegend": true}
		options["tooltip"] = object{"mode": "multi", "sort": "desc"}
	case stat:
		options["reduceOptions"] = object{"calcs": []string{"lastNotNull"}}
		options["colorMode"] = "value"
		defaults["color"], defaults["thresholds"] = object{"mode": "thresholds"}, p.thresholds()
	case table:
		// Its columns are the labels.
		rendered["transformations"] = []object{{"id": "organize", "options": object{"excludeByName": object{"Time": true, "Value": true}}}}
	}
	var targets []object
	for i, q := range p.queries {
		target := object{"refId": string(rune('A' + i)), "datasource": source, "expr": q.expr, "legendFormat": q.legend}
		if p.kind == table {
			target["instant"], target["format"] = true, "table"
		}
		targets = append(targets, target)
	}
	rendered["targets"] = targets
	return rendered
}

func (p *panel) thresholds() object {
	steps := []object{{"color": "green", "value": nil}}
	for _, step := range []struct {
		color string
		from  float64
	}{{"yellow", p.warn}, {"red", p.alarm}} {
		if step.from > 0 {
			steps = append(steps, object{"color": step.color, "value": json.Number(strconv.FormatFloat(step.from, 'g', -1, 64))})
		}
	}
	return object{"mode": "absolute", "steps": steps}
}
