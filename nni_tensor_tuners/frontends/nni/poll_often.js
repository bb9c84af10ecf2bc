// Loaded into NNI's manager by NODE_OPTIONS=--require. The manager looks twice a second which trials have ended, and starts the
// next ones when it looks again: a trial's place is empty for almost a second, in which another one could be measured.
const Module = require('module');
const load = Module._load;
const SECONDS = 0.05;

Module._load = function (request, ...rest) {
    const loaded = load.call(this, request, ...rest);
    if (request.endsWith('core/nnimanager') && loaded.NNIManager && loaded.NNIManager.prototype.manageTrials) {
        const { manageTrials } = loaded.NNIManager.prototype;
        loaded.NNIManager.prototype.manageTrials = function (...args) {
            this.pollInterval = Math.min(this.pollInterval, SECONDS);
            return manageTrials.apply(this, args);
        };
        Module._load = load;
    }
    return loaded;
};
