package injection

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/tranche-cloud/tranche/internal/gpu"
	cdi "tags.cncf.io/container-device-interface/specs-go"
)

// readOnly is how files of the host are shown to a tenant.
func readOnly() []string { return []string{"ro", "nosuid", "nodev", "bind", "private"} }

// edits returns what a container gets of a slice.
func (s *Store) edits(name string, slice Slice) (cdi.ContainerEdits, error) {
	edits := cdi.ContainerEdits{Env: environment(slice)}
	var err error
	if slice.Driver == Simulated {
		edits.DeviceNodes, err = s.simulatedNodes(name)
	} else {
		edits.DeviceNodes, err = s.nodes(name, slice)
	}
	if err != nil {
		return cdi.ContainerEdits{}, err
	}
	if slice.Driver == NVIDIA {
		edits.Mounts, err = s.software(name)
		if err != nil {
			return cdi.ContainerEdits{}, err
		}
	}
	if slice.MPS != nil && slice.MPS.PipeDir != "" {
		edits.Mounts = append(edits.Mounts, &cdi.Mount{
			HostPath: slice.MPS.PipeDir, ContainerPath: PipeDir, Type: "bind", Options: readOnly(),
		})
	}
	return edits, nil
}

// environment is what programs read; none of it is a boundary. The two search paths
// are put in front of the image's own by Inject.
func environment(slice Slice) []string {
	env := []string{"NVIDIA_VISIBLE_DEVICES=void"}
	if slice.Driver == Simulated {
		env = append(env, "TRANCHE_SIMULATED_GPU=1")
	} else {
		env = append(env, libraryPath+"="+LibraryDir, programPath+"="+BinaryDir)
	}
	if slice.Technique == gpu.MIG {
		env = append(env, visibleDevices+"="+slice.UUID)
	}
	if m := slice.MPS; m != nil {
		env = append(env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="+strconv.Itoa(m.Percent))
		if m.PipeDir != "" {
			env = append(env, "CUDA_MPS_PIPE_DIRECTORY="+PipeDir)
		}
		if m.Memory > 0 {
			env = append(env, fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=%dM", int64(m.Memory)))
		}
	}
	return env
}

// node is one device node under the same name inside as the driver gives it.
func (s *Store) node(relative string) *cdi.DeviceNode {
	node := &cdi.DeviceNode{Path: filepath.Join("/dev", relative), Type: "c", Permissions: "rw"}
	if host := filepath.Join(s.cfg.Devices, relative); host != node.Path {
		node.HostPath = host
	}
	return node
}

// nodes returns the nodes of a real slice, checked one by one.
func (s *Store) nodes(name string, slice Slice) ([]*cdi.DeviceNode, error) {
	own := "nvidia" + strconv.Itoa(slice.Minor)
	var nodes []*cdi.DeviceNode
	for _, relative := range []string{own, "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"} {
		minor := -1
		if relative == own {
			minor = slice.Minor
		}
		if err := s.checkNode(name, relative, minor); err != nil {
			return nil, err
		}
		nodes = append(nodes, s.node(relative))
	}
	if slice.Technique != gpu.MIG {
		return nodes, nil
	}
	minors, err := readMinors(name, s.cfg.MigMinors)
	if err != nil {
		return nil, err
	}
	gi := fmt.Sprintf("gpu%d/gi%d", slice.Minor, slice.GI)
	for _, capability := range []string{gi + "/access", fmt.Sprintf("%s/ci%d/access", gi, slice.CI)} {
		minor, found := minors[capability]
		if !found {
			return nil, refuse(MinorMissing, name, "%s does not list %s: the MIG instance is not there", s.cfg.MigMinors, capability)
		}
		relative := "nvidia-caps/nvidia-cap" + strconv.Itoa(minor)
		if err := s.checkNode(name, relative, minor); err != nil {
			return nil, err
		}
		nodes = append(nodes, s.node(relative))
	}
	return nodes, nil
}
