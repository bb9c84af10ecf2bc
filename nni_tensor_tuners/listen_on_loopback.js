// Loaded into NNI's manager by NODE_OPTIONS=--require. The manager's web UI and REST API listen on every interface, without a
// password and with no setting to change that; here every server that names no host gets one.
const net = require('net');
const listen = net.Server.prototype.listen;
const host = process.env.TENSOR_TUNERS_HOST || '127.0.0.1';

net.Server.prototype.listen = function (...args) {
    if (typeof args[0] === 'number' && typeof args[1] !== 'string') {
        args.splice(1, 0, host);
    } else if (args[0] !== null && typeof args[0] === 'object' && args[0].port !== undefined && args[0].host === undefined) {
        args[0] = { ...args[0], host };
    }
    return listen.apply(this, args);
};
