// A load generator in the manner of kube-burner, which cannot be had from every module proxy: a limiter of a rate and a
// burst, each object rendered from a template, decoded from YAML and created by the dynamic client in a goroutine of
// its own, pods followed by an informer of the same process, and times from the whole seconds that a pod carries.
// Prints as JSON what that cost and what it measured: the peer of bench/scale_cluster.py.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"text/template"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"seatrial/bench/go-client/measure"
)

const label = "bench-burner"

// rendered is one object of a template, which is parsed and decoded anew for each.
func rendered(text string, values map[string]any) (*unstructured.Unstructured, error) {
	parsed, err := template.New("object").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, err
	}
	var made bytes.Buffer
	if err := parsed.Execute(&made, values); err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	_, _, err = yaml.NewDecodingSerializer(unstructured.UnstructuredJSONScheme).Decode(made.Bytes(), nil, object)
	return object, err
}

// followed holds what the informer has seen: of each pod the milliseconds from its creation to its being scheduled, or
// -1 of one that a gate keeps from that.
type followed struct {
	sync.Mutex
	took map[string]int64
}

func (seen *followed) see(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	seen.Lock()
	defer seen.Unlock()
	if len(pod.Spec.SchedulingGates) > 0 {
		seen.took[string(pod.UID)] = -1
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionTrue {
			seen.took[string(pod.UID)] = condition.LastTransitionTime.Sub(pod.CreationTimestamp.Time).Milliseconds()
		}
	}
}

func (seen *followed) count() int {
	seen.Lock()
	defer seen.Unlock()
	return len(seen.took)
}

func (seen *followed) quantile(share float64) int64 {
	all := make([]int64, 0, len(seen.took))
	for _, took := range seen.took {
		all = append(all, took)
	}
	if len(all) == 0 {
		return -1
	}
	sort.Slice(all, func(one, other int) bool { return all[one] < all[other] })
	return all[int(share*float64(len(all)-1))]
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "which cluster")
	namespace := flag.String("namespace", "default", "where the objects go")
	prefix := flag.String("prefix", "burner", "how their names begin")
	file := flag.String("template", "", "the object, with {{.Name}}")
	count := flag.Int("count", 500, "how many")
	qps := flag.Float64("qps", 5, "creates a second")
	burst := flag.Int("burst", 10, "how many of them at once")
	wait := flag.Duration("wait", 0, "follow the pods, and wait so long at most until all are scheduled or seen behind a gate")
	flag.Parse()

	text, err := os.ReadFile(*file)
	if err != nil {
		measure.Fail(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		measure.Fail(err)
	}
	config.QPS, config.Burst = float32(*qps), *burst
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		measure.Fail(err)
	}
	ctx := context.Background()
	pods := client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(*namespace)
	if _, err := pods.List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		measure.Fail(err)
	}
	seen := &followed{took: map[string]int64{}}
	if *wait > 0 {
		follow(ctx, kubernetes.NewForConfigOrDie(config), *namespace, *prefix, seen)
	}

	limiter := rate.NewLimiter(rate.Limit(*qps), *burst)
	var failed atomic.Int64
	var creating sync.WaitGroup
	began, before := time.Now(), measure.CPUSeconds()
	for number := range *count {
		if err := limiter.Wait(ctx); err != nil {
			measure.Fail(err)
		}
		values := map[string]any{"Name": fmt.Sprintf("%s-%d", *prefix, number), "Iteration": number}
		object, err := rendered(string(text), values)
		if err != nil {
			measure.Fail(err)
		}
		labels := object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[label] = *prefix
		object.SetLabels(labels)
		creating.Go(func() {
			if _, err := pods.Create(ctx, object, metav1.CreateOptions{}); err != nil {
				fmt.Fprintln(os.Stderr, err)
				failed.Add(1)
			}
		})
	}
	creating.Wait()
	wall := time.Since(began).Seconds()
	for until := time.Now().Add(*wait); seen.count() < *count && time.Now().Before(until); {
		time.Sleep(100 * time.Millisecond)
	}
	answer := map[string]any{"failed": failed.Load(), "cpu_s": measure.CPUSeconds() - before, "wall_s": wall}
	answer["seen"], answer["p50_ms"], answer["p99_ms"] = seen.count(), seen.quantile(0.5), seen.quantile(0.99)
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		measure.Fail(err)
	}
}

// follow returns when the informer has listed what is there.
func follow(ctx context.Context, client kubernetes.Interface, namespace, prefix string, seen *followed) {
	chosen := func(options *metav1.ListOptions) { options.LabelSelector = label + "=" + prefix }
	factory := informers.NewSharedInformerFactoryWithOptions(
		client, 0, informers.WithNamespace(namespace), informers.WithTweakListOptions(chosen))
	informer := factory.Core().V1().Pods().Informer()
	handler := cache.ResourceEventHandlerFuncs{AddFunc: seen.see, UpdateFunc: func(_, pod any) { seen.see(pod) }}
	if _, err := informer.AddEventHandler(handler); err != nil {
		measure.Fail(err)
	}
	factory.Start(ctx.Done())
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
}
