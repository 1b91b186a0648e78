// Command karpenter is Karpenter with its KWOK provider: an autoscaler whose
// machines are Node objects. `karpenter crds` prints the definitions it needs.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	kwokapis "sigs.k8s.io/karpenter/kwok/apis"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/apis"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "crds" {
		if err := printDefinitions(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	exitWithStdin()
	run()
}

// printDefinitions writes one JSON document a line.
func printDefinitions() error {
	for _, definition := range append(apis.CRDs, kwokapis.CRDs...) {
		line, err := json.Marshal(definition)
		if err != nil {
			return fmt.Errorf("printing %s: %w", definition.Name, err)
		}
		fmt.Printf("%s\n", line)
	}
	return nil
}

// run is upstream's main function.
func run() {
	ctx, op := operator.NewOperator()
	instanceTypes, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "constructing instance types:", err)
		os.Exit(1)
	}
	bare := kwok.NewCloudProvider(ctx, op.GetClient(), instanceTypes)
	decorated := overlay.Decorate(bare, op.GetClient(), op.InstanceTypeStore)
	cluster := state.NewCluster(op.Clock, op.GetClient(), decorated)
	op.WithControllers(ctx, controllers.NewControllers(
		ctx,
		op.Manager,
		op.Clock,
		op.GetClient(),
		op.EventRecorder,
		decorated,
		bare,
		cluster,
		op.InstanceTypeStore,
	)...).Start(ctx)
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
