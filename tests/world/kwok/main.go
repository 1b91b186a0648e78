// Command kwok plays the kubelets: it brings Nodes to Ready and their pods to
// Running, without machines. `kwok stages` prints the stages that make it do so.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	node "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	lease "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	pod "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "stages" {
		exitOn(printStages())
		return
	}
	exitWithStdin()
	exitOn(run())
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// printStages writes one JSON document a line.
func printStages() error {
	for _, stage := range []string{
		node.DefaultNodeInit,
		lease.DefaultNodeHeartbeatWithLease,
		pod.DefaultPodReady,
		pod.DefaultPodComplete,
		pod.DefaultPodDelete,
	} {
		line, err := yaml.YAMLToJSON([]byte(stage))
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", line)
	}
	return nil
}

// run is upstream's main function.
func run() error {
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}

	ctx, _ := log.InitFlags(signals.SetupSignalContext(), flags)
	ctx, err := config.InitFlags(ctx, flags)
	if err != nil {
		return err
	}
	command := cmd.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(flags)
	return command.ExecuteContext(ctx)
}

// exitWithStdin ends the process when its standard input closes, so that a
// test which was killed leaves nothing behind. On only if EXIT_WITH_STDIN is set.
func exitWithStdin() {
	if os.Getenv("EXIT_WITH_STDIN") == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
}
