"""A tuner whose search raises."""

from nni_tensor_tuners.tuner import TensorTuner


class BrokenTuner(TensorTuner):
    def update_search_space(self, search_space):
        super().update_search_space(search_space)

        def ask(n):
            raise RuntimeError("the search is broken")

        self._study.search.ask = ask
