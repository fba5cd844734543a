// Domains, racks, nodes and their devices. Vue sets all text, and so escapes it.
export default {
  template: `
    <div class="map">
      <section v-for="domain in domains" :key="domain.name" class="map-domain">
        <h3 v-if="domains.length > 1" class="muted">Domain {{ domain.name }}</h3>
        <div class="map-racks">
          <section v-for="rack in domain.racks" :key="rack.name" class="map-rack">
            <h3 v-if="domain.racks.length > 1 || rack.name !== 'rack'" class="muted">Rack {{ rack.name }}</h3>
            <div class="map-nodes">
              <component :is="still ? 'div' : 'button'" v-for="node in rack.nodes" :key="node.id" class="map-node"
                :class="'is-' + node.state" :aria-label="node.label" :title="node.label" :role="still ? 'img' : null"
                @click="still || $emit('node', node.id)">
                <span class="map-node-name"><span class="ellipsis">{{ node.id }}</span>
                  <span v-if="node.state !== 'up'" class="map-node-state">{{ node.state }}</span></span>
                <span class="map-devices" aria-hidden="true">
                  <span v-for="(device, at) in node.devices" :key="at" class="map-device" :title="device.t"
                    :class="[device.c, device.f ? 'fragment' : '', ends(node, at) ? 'socket-end' : '']">
                    <span v-if="device.p" class="map-rest" :style="{height: (100 - device.p) + '%'}"></span>
                  </span>
                </span>
              </component>
            </div>
          </section>
        </div>
      </section>
    </div>`,
  props: { domains: Array, still: Boolean },
  emits: ["node"],
  methods: {
    ends(node, at) {
      let sum = 0;
      for (const size of node.sockets) {
        sum += size;
        if (sum === at + 1 && sum < node.devices.length) return true;
      }
      return false;
    },
  },
};
