// Renders the templates of a chart with Go's template engine and the functions of Helm that the chart uses.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

func main() {
	text, err := os.ReadFile(os.Args[2])
	fail(err)
	var values map[string]interface{}
	fail(json.Unmarshal(text, &values))
	data := map[string]interface{}{
		"Values":  values,
		"Release": map[string]interface{}{"Namespace": os.Args[3], "Name": "rota"},
	}
	functions := template.FuncMap{"quote": func(value interface{}) string { return fmt.Sprintf("%q", fmt.Sprint(value)) }}
	paths, err := filepath.Glob(filepath.Join(os.Args[1], "*.yaml"))
	fail(err)
	for _, path := range paths {
		source, err := os.ReadFile(path)
		fail(err)
		made, err := template.New(filepath.Base(path)).Option("missingkey=error").Funcs(functions).Parse(string(source))
		fail(err)
		fmt.Println("---")
		fail(made.Execute(os.Stdout, data))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
