// Command ccm is the AWS cloud controller manager: it gives Nodes their
// addresses, and removes the Node objects of instances that are gone.
package main

import (
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	aws "k8s.io/cloud-provider-aws/pkg/providers/v1"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"
)

func main() {
	exitWithStdin()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run is upstream's main function, without its tagging controller.
func run() error {
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		return err
	}
	return app.NewCloudControllerManagerCommand(
		opts,
		cloud,
		app.DefaultInitFuncConstructors,
		names.CCMControllerAliases(),
		cliflag.NamedFlagSets{},
		wait.NeverStop,
	).Execute()
}

// cloud ends the process where it can't return an error: upstream's signature
// has no room for one.
func cloud(config *config.CompletedConfig) cloudprovider.Interface {
	file := config.ComponentConfig.KubeCloudShared.CloudProvider.CloudConfigFile
	cloud, err := cloudprovider.InitCloudProvider(aws.ProviderName, file)
	if err == nil && !cloud.HasClusterID() {
		err = fmt.Errorf("%s names no cluster", file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "initialising the cloud provider:", err)
		os.Exit(1)
	}
	return cloud
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
